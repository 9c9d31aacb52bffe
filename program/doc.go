// Package program is the command longshore: run, produce, lag, scaler, dlq, config and the other commands. A main function of
// your own that calls Main has them all, with your handlers beside the ready-made ones in its configuration files:
//
//	func main() {
//		handlers.Register("resize", newResize)
//		program.Main(handlers.Default())
//	}
//
// MainWith takes adapters for other brokers, metrics and observers, too.
//
// A service that is configured in Go needs none of this; see package consumer.
//
// Exit codes: 0 done, 1 failed at work, 2 wrong use or configuration, 130 and 143 stopped by force (a second SIGINT or SIGTERM).
//
// # The files
//
//	program.go       the commands, and how the process ends; forced.go: by force; version.go, man.go: what is known of it;
//	                 emptyflags.go refuses flags that are set to nothing; waits.go ends at a signal what only reads
//	parts.go         what a main function of your own adds
//
//	run.go           run. Before anything dials, assemble.go makes of a file what it asks for: adapter.go its sources, member.go
//	                 its consumers, batch.go their batches, middleware.go what is around their handlers, sharing.go which limits
//	                 processes share, adminpage.go the page. stopclock.go: what is left of a stop's time
//	connect.go       where the brokers are; embedded.go, streams.go, durables.go: the embedded NATS, and what is in it
//	logger.go        the log; telemetry.go: spans and metrics for a collector; tracing.go: which, and where to
//
//	config.go        config check and example; configshow.go: show. How a file is read is in program/internal/config
//	lag.go           lag: lagview.go asks the brokers, lagtable.go prints
//	dlq.go           dlq: dlqtarget.go says whose letters are meant; dlqlist.go (dlqsummary.go), dlqedit.go (editfolder.go,
//	                 editfolder_unix.go, editfolder_other.go), dlqreplay.go (dlqturns.go), dlqpurge.go are its commands
//	produce.go       produce: to a target.go, payloads of payload.go, as a production.go
//	scaler.go        scaler, and scalerbeside.go beside run: scalerwork.go asks brokers, scalermembers.go the processes,
//	                 scalertarget.go puts both together; scalerserver.go answers KEDA (certificate.go: by TLS),
//	                 scalerpage.go over HTTP
//	top.go           top
//	demo.go          demo: demobroker.go, demoload.go, demotally.go, demoview.go
//
//	terminal.go      what is written to a terminal: progress.go, visible.go, escape.go
package program
