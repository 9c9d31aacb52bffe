package inbox

import (
	"database/sql"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A Dialect is the SQL that a database speaks.
type Dialect int

// The dialects that are tested, each with the real database.
const (
	// Postgres is PostgreSQL 9.5 or newer, with any driver.
	Postgres Dialect = iota + 1
	// SQLite is 3.35 or newer, with any driver.
	SQLite
)

// A Config says where an inbox is.
type Config struct {
	// DB is the database that handlers write to. Create and Prune use it; Once uses the transaction that it is given.
	DB *sql.DB
	// Dialect is what DB speaks.
	Dialect Dialect
	// Consumer is who handles the messages: the consumer group, or the durable. All its processes have the same one, and no other
	// consumer has it: each handles a message once.
	Consumer string
	// Table is the name of the table, with a schema before it or not. The floors are in a second one, whose name ends in _floors. Of
	// letters, digits and underscores; at most 56 on PostgreSQL, which cuts longer names off. Defaults to longshore_inbox.
	Table string
	// Interval is how often Run looks at the floors. What is finished within it stays in the table for so long. Defaults to 1 s.
	Interval time.Duration
	// Report is told why Run could not prune; it tries again after Interval. A panic of it is written by log/slog, and nothing else
	// comes of it. Defaults to a warning by log/slog.
	Report func(error)
}

var names = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// longestName leaves room for _floors in the 63 bytes that PostgreSQL's names have.
const longestName = 63 - len("_floors")

func (c *Config) withDefaults() Config {
	d := *c
	if d.Table == "" {
		d.Table = "longshore_inbox"
	}
	if d.Interval == 0 {
		d.Interval = time.Second
	}
	if d.Report == nil {
		d.Report = func(err error) { slog.Warn("the inbox was not pruned", "error", err) }
	}
	return d
}

// Validate says all that is wrong with c.
func (c *Config) Validate() error {
	d, fs := c.withDefaults(), broker.Findings{Of: "inbox"}
	fs.Check(d.DB != nil, "DB", "is missing")
	fs.Check(d.Dialect == Postgres || d.Dialect == SQLite, "Dialect", "is %d, neither Postgres nor SQLite", d.Dialect)
	fs.Check(d.Consumer != "", "Consumer", "is missing: the consumer group or the durable that handles the messages")
	fs.Check(names.MatchString(d.Table), "Table", "is %q, want letters, digits and underscores, with a schema before it or not",
		d.Table)
	_, name, schema := strings.Cut(d.Table, ".")
	if !schema {
		name = d.Table
	}
	fs.Check(d.Dialect != Postgres || len(name) <= longestName, "Table",
		"has %d characters, want at most %d: PostgreSQL would cut the name of the floors' table off", len(name), longestName)
	fs.Check(d.Interval > 0, "Interval", "is %v, want more than 0", d.Interval)
	return fs.Err()
}
