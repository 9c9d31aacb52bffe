// Package deadletters works with the messages that consumers have given up: it lists them, shows them, replays them to where they
// came from or to a handler, and deletes them. It reads a dead-letter topic (or subject) without consuming it, so it works beside
// whoever does.
//
// # Replay
//
// What was replayed is written down in a journal, a topic or stream beside the dead letters, [JournalTopic]. Before letters are
// published, a record says which and where to; when their publishes are confirmed, another says so. So a replay that was killed
// in the middle goes on where it stopped, and the next one knows which letters were on their way: it looks for them in their
// topic by the id that each replayed message carries, and publishes those that are not there. Where that cannot be known, since
// the topic does not keep what it was given, they are published again and named ([Summary].PerhapsTwice). A letter is replayed
// once, by whichever filter, unless it is asked for again.
//
// Each replayed message says how often it was replayed, Longshore-Replays, and beyond a limit it is refused; what became of it
// each time before is in its headers Longshore-History. Both stay with it when it fails again.
//
// The brokers' part is small, [Store]: the LogView of kafkabroker, natsbroker and membroker has it.
//
// # Where things are
//
//	letters.go    the letters of a topic: listed, got, counted
//	letter.go     one of them, its place, and which ones are meant
//	replay.go     replays them, batch by batch; summary.go: what it tells; handle.go: to a handler of this process
//	outgoing.go   a letter as it is published, where to, and under which id
//	edit.go       how the copy that is published differs from its letter
//	confirm.go    publishes until it is known what became of each
//	journal.go    what replays have begun and done; record.go: one entry
//	marks.go      what the journal says of each letter
//	repeats.go    which replays with Again did not get to their end
//	resolve.go    what was on its way when a replay ended, and whether it arrived
//	purge.go      deletes letters
package deadletters
