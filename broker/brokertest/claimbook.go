package brokertest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/longshoremq/longshore/broker"
)

// A claimBook has a member's claims: what was told of each, and what was handed out under it.
type claimBook struct {
	fail failure

	mu sync.Mutex
	of map[*broker.Claim]*claimRecord
}

type claimRecord struct {
	assigned, ended bool
	observed        bool             // Observe has returned from Assigned
	high            map[string]int64 // by partition: the highest offset that was handed out for the first time
	handed          int              // messages, repeated ones too
}

// record returns the claim's, and makes one where there is none. The caller holds b.mu.
func (b *claimBook) record(c *broker.Claim) *claimRecord {
	r := b.of[c]
	if r == nil {
		r = &claimRecord{high: make(map[string]int64)}
		b.of[c] = r
	}
	return r
}

// note takes note of an event that is being told.
func (b *claimBook) note(e broker.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Kind {
	case broker.Assigned:
		r := b.record(e.Claim)
		if r.assigned {
			b.fail("a claim was Assigned twice")
		}
		r.assigned = true
	case broker.Ended:
		r := b.record(e.Claim)
		if !r.assigned {
			b.fail("Ended of a claim that was not Assigned before")
		}
		if r.ended {
			b.fail("a claim Ended twice")
		}
		r.ended = true
		b.checkCause(e.Claim)
	}
}

func (b *claimBook) checkCause(c *broker.Claim) {
	if !hasEnded(c) {
		b.fail("the Ended event came before Keeper.End")
	} else if err := c.Cause(); !errors.Is(err, broker.ErrLost) && !errors.Is(err, broker.ErrClosed) {
		b.fail("a claim ended with the cause %v, which wraps neither ErrLost nor ErrClosed", err)
	}
}

// observed takes note that Observe has returned from an event.
func (b *claimBook) observed(e broker.Event) {
	if e.Kind != broker.Assigned {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.record(e.Claim).observed = true
}

// hand takes note of n messages that were handed out.
func (b *claimBook) hand(c *broker.Claim, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.record(c)
	switch {
	case c == nil || !r.assigned:
		b.fail("a message was handed out before its claim's Assigned event")
	case !r.observed:
		b.fail("a message was handed out before Observe had returned from its claim's Assigned event")
	}
	r.handed += n
}

// inOrder takes note of a message that was handed out for the first time: it may not come behind another one.
func (b *claimBook) inOrder(c *broker.Claim, msg *broker.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	high, at := b.record(c).high, fmt.Sprintf("%s/%d", msg.Topic, msg.Partition)
	if last, ok := high[at]; ok && msg.Offset <= last {
		b.fail("offset %d of %s came after %d", msg.Offset, at, last)
	}
	high[at] = msg.Offset
}

// list returns those claims that are open, or those that are not any more.
func (b *claimBook) list(open bool) (cs []*broker.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.of {
		if c.Startable() == open {
			cs = append(cs, c)
		}
	}
	return cs
}

// used is an open claim under which something was handed out, or nil.
func (b *claimBook) used() (c *broker.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, r := range b.of {
		if of.Startable() && r.handed > 0 {
			c = of
		}
	}
	return c
}

// allEnded checks that all have ended, and that this was told.
func (b *claimBook) allEnded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, r := range b.of {
		if !hasEnded(c) {
			b.fail("after Close a claim has not ended")
		} else if !r.ended {
			b.fail("a claim ended without an Ended event")
		}
	}
}

func hasEnded(c *broker.Claim) bool {
	select {
	case <-c.Ended():
		return true
	default:
		return false
	}
}
