// Package inbox proves package inbox on the databases themselves: SQLite, and PostgreSQL as a process of its own. It is a
// module of its own, so that no user's go.sum has their drivers.
package inbox
