package consumer

import (
	"math"
	"time"
)

// Oldest returns the time (Message.Time) of the oldest message that was received and is not settled: queued, running, parked, or on its way to
// the dead letters. The zero time: there is none, or none whose time the broker gave. How old it is says how late the slowest of what is in
// hand is, which a lag in messages does not.
//
// It looks at all that is in hand, some nanoseconds for each message, under one claim's lock at a time: for a scrape, not for a hot path.
func (c *Consumer) Oldest() time.Time {
	c.mu.Lock()
	claims := make([]*claim, 0, len(c.claims))
	for _, k := range c.claims {
		claims = append(claims, k)
	}
	c.mu.Unlock()
	oldest := int64(math.MaxInt64)
	for _, k := range claims {
		oldest = min(oldest, k.oldest())
	}
	c.parked.each(func(p parked) { oldest = min(oldest, timeOf(p.m)) })
	oldest = min(oldest, c.letters.oldest())
	if oldest == math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, oldest)
}

// timeOf is m's time; the latest of all where the broker gave none.
func timeOf(m *Message) int64 {
	if m.Nanos == 0 {
		return math.MaxInt64
	}
	return m.Nanos
}

// oldest is the least time in k's live runs.
func (k *claim) oldest() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	oldest := int64(math.MaxInt64)
	for r := k.first; r != nil; r = r.next {
		from, next, end := unpackWord(r.word.Load())
		for i := max(from, next-1); i < end; i++ {
			oldest = min(oldest, timeOf(&r.ms[i]))
		}
	}
	return oldest
}

// oldest is the least time among the letters that are not settled.
func (d *letters) oldest() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	oldest := int64(math.MaxInt64)
	for m := range d.open {
		oldest = min(oldest, timeOf(m))
	}
	return oldest
}
