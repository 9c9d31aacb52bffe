// Package inbox lets a handler write to its own database exactly once for each message, although the message may be delivered
// again.
//
// [Inbox.Once] writes a row for the message in the handler's own transaction, and says whether it is the first one. Row and
// work are committed together or not at all, so what was done is never done again:
//
//	box, err := inbox.New(inbox.Config{DB: db, Dialect: inbox.Postgres, Consumer: "billing"})
//	…
//	func handle(ctx context.Context, m *consumer.Message) error {
//		tx, err := db.BeginTx(ctx, nil)
//		if err != nil {
//			return err
//		}
//		defer func() { _ = tx.Rollback() }()
//		if err := consumer.Emit(ctx, billOf(m)); err != nil { // where it emits: before Once, so that a repeat does, too
//			return err
//		}
//		first, err := box.Once(ctx, tx, m)
//		if err != nil || !first {
//			return err // not first: the work is done already
//		}
//		if _, err := tx.ExecContext(ctx, "INSERT INTO bills …"); err != nil {
//			return err
//		}
//		return tx.Commit()
//	}
//
// [Inbox.Run] removes a row when its message cannot come again: it asks the consumer for the floors of its logs, as the broker
// has them down ([broker.Floor]), and removes what is below. No time is guessed, and the table is as small as what is
// unfinished, and what was finished since. The floors are kept, a row for each log: a handler that was late, in a process that
// was cut off or frozen, and whose message is below the floor by then, is told that it is not the first one.
//
// Run it beside the consumer, or the table grows for ever: a handler that a configuration file names gives it to
// handlers.Setup.Beside.
//
// # What it needs
//
// A source that names its logs, and knows their floors (broker.FloorReporter): Kafka since 2.8, JetStream, membroker. Otherwise
// Once says ErrNoLog. PostgreSQL or SQLite; a table in the database that the handler writes to. Two statements for each
// message.
//
// # What to mind
//
//   - What a handler emits (consumer.Emit) is no part of the transaction. It is published after Commit, and where that fails, or
//     the process dies before, the next run is not the first, and what it does not emit is never published. So emit in both
//     cases: before Once. Outputs are then there at least once, and once where the source is transactional. See Once.
//   - Return nil once Commit has said nil. A message that goes to a retry topic or to the dead letters after its work was
//     committed has another place there, and is handled as another message.
//   - What is unknown after a Commit that failed is found out by the next run: return the error.
//   - A transaction that was left open keeps the other runs of its message waiting in Once, until the server ends it: set
//     idle_in_transaction_session_timeout in PostgreSQL to some seconds more than a handler takes.
//   - A topic that is read again from an earlier position (longshore's or the broker's tools) is not handled again. To have that,
//     stop the consumers, and delete the consumer's rows from both tables.
//   - A broker that loses what it had stored, or has it restored from a backup, gives the offsets of the lost messages to others,
//     which are taken for done here: delete the rows, as above. A JetStream server may lose its last two minutes with its power
//     unless its sync_interval is always; Kafka loses where a replica that was behind becomes the leader
//     (unclean.leader.election.enable).
//   - It holds as far as the database keeps what it has committed, for the message is acked then: leave synchronous_commit and
//     fsync of PostgreSQL on, and synchronous of SQLite at FULL, and mind standbys that are behind when they take over.
//   - The rows of a log that was deleted stay; there are no more of them than were unfinished at once.
package inbox
