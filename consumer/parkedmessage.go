package consumer

import (
	"slices"
	"time"
)

// A ParkedMessage waits in this process for its next attempt.
type ParkedMessage struct {
	Topic     string
	Partition int32
	Offset    int64
	ID        string
	// Key and KeyBytes are as in Call.
	Key      string
	KeyBytes int
	// Attempt is which try the next one is.
	Attempt int32
	// Due is when it is tried again.
	Due time.Time
	// Deferred: its handler asked for it to wait (Defer), and it did not fail. Then Class and Err say nothing.
	Deferred bool
	// Class and Err are of the failure, as in Failed.
	Class string
	Err   error
}

// parkedMessages are as Consumer.Parked says.
func (f *figures) parkedMessages(n int) []ParkedMessage {
	var all []ParkedMessage
	f.parked.due.each(func(p parked) {
		key, bytes := keyOf(p.m)
		all = append(all, ParkedMessage{
			Topic: p.m.Topic, Partition: p.m.Partition, Offset: p.m.Offset, ID: p.m.ID(), Attempt: max(p.m.Attempt, p.m.Runs+1),
			Key: key, KeyBytes: bytes,
			Due: p.due, Deferred: p.deferred(), Class: p.failed.Class, Err: p.failed.Err,
		})
	})
	slices.SortFunc(all, func(a, b ParkedMessage) int { return a.Due.Compare(b.Due) })
	return all[:min(max(0, n), len(all))]
}
