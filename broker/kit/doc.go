// Package kit has the parts that most adapters of a broker need: each keeps one kind of record, and keeps it alone. An adapter
// takes those that fit it; none of them knows a source, does I/O or starts a goroutine of its own accord.
//
//	Gate           what is out and what is prefetched, against the budget, and whether somebody waits for it
//	EventQueue     events on their way to Options.Observe, told outside of locks; contact with the broker lost and found
//	Pauses         what is paused
//	StaleInFlight  what is still out under claims that have ended
//	Life           Open once, Close once, and the goroutines in between
//
// Gate, Pauses and StaleInFlight have no lock: an adapter has them under its own, so that a settle takes one lock for all.
// EventQueue and Life have theirs, and may be called with the adapter's lock held where their comments do not say otherwise.
//
// What decides about messages, positions or leases, is the adapter's: brokers differ there. Package brokertest proves the whole.
package kit
