// Package kit has the parts that most adapters of a broker need: each keeps one kind of record, and keeps it alone. An adapter
// takes those that fit it; none of them knows a source, does I/O or starts a goroutine of its own accord.
//
//	Gate           what is out and what is prefetched, against the budget, and whether somebody waits for it
//	EventQueue     events on their way to Options.Observe, told outside of locks; contact with the broker lost and found
//	Operations     how long requests took, on their way to Options.Operated
//	Pauses         what is paused
//	StaleInFlight  what is still out under claims that have ended
//	Life           Open once, Close once, and the goroutines in between
//	Publishing     the same of a publisher
//	Retry          what is tried until the broker answers, a ctx ends, or nothing helps
//	Tally          what became of the messages of one settle, and the error for it
//	LeaseClock     how long a message that the broker leases is certainly here
//	Recent         the last finished messages
//	Deliveries     the messages of one claim, each with its lease: out, or settled and not sent yet
//	Bell           wakes a goroutine that sends what others have queued
//
// Gate, Pauses, StaleInFlight, Tally, LeaseClock, Recent and Deliveries have no lock: an adapter has them under its own, so that
// a settle takes one lock for all. EventQueue, Life and Publishing have theirs; Operations and Bell need none; EventQueue, Life
// and Bell.Ring may be called with the adapter's lock held where their comments do not say otherwise.
//
// The module examples/redisbroker is an adapter that stands on them, and spool_test.go here has a small one in memory;
// docs/adapters.md says which is for what.
//
// What decides about messages, positions or leases, is the adapter's: brokers differ there. Deliveries are the exception: where
// each message has a lease of its own and the broker keeps no delay, package broker says all of it. Package brokertest proves
// the whole.
package kit
