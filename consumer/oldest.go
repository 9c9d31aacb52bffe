package consumer

import (
	"math"
	"time"
)

// Oldest returns the time (Message.Time) of the oldest message that was received and is not settled: queued, running, parked, or
// on its way to the dead letters. The zero time: there is none, or none whose time the broker gave. How old it is says how late
// the slowest of what is in hand is, which a lag in messages does not.
//
// It looks at all that is in hand, some nanoseconds for each message, under one claim's lock at a time: for a scrape, not for a
// hot path.
func (c *Consumer) Oldest() time.Time {
	oldest := int64(math.MaxInt64)
	c.eachHeld(func(m *Message) { oldest = min(oldest, timeOf(m)) })
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

// eachHeld calls do with each message that was received and is not settled, in no order. do is called with locks held: it must
// not call back.
func (c *Consumer) eachHeld(do func(*Message)) {
	for _, k := range c.openClaims() {
		k.each(do)
	}
	for _, t := range c.allLanes() {
		t.each(do)
	}
	c.parked.each(func(p parked) { do(p.m) })
	c.letters.each(do)
}

// openClaims are the claims that have not ended.
func (c *Consumer) openClaims() []*claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	claims := make([]*claim, 0, len(c.claims))
	for _, k := range c.claims {
		claims = append(claims, k)
	}
	return claims
}

// each calls do with each message in k's live runs that is not settled.
func (k *claim) each(do func(*Message)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for r := k.first; r != nil; r = r.next {
		from, next, end := unpackState(r.state.Load())
		left := r.part(min(max(from, next-1), end), end)
		for i := range left {
			do(&left[i])
		}
	}
	for g := range k.gatherings() {
		for i := range g.ms {
			do(&g.ms[i])
		}
	}
}

// each calls do with each message whose letter is not settled.
func (d *letters) each(do func(*Message)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for m := range d.open {
		do(m)
	}
}
