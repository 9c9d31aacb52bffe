// Package browser drives the page of the admin server in a real browser, on a consumer in memory, on NATS JetStream and on
// Apache Kafka. It is a module of its own, so that what drives the browser reaches nobody's go.sum. `.ci/browser` installs what
// it needs and runs it.
package browser
