package membroker

import (
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A batch is what is sent of one holding at once.
type batch struct {
	h        *holding
	term     int64
	p        progress // partitioned
	acks     []int64  // leased
	backs    []leasedBack
	promised int64
	err      error
}

// commit writes a member's progress down, if the partition is still its.
func (m *member) commit(c *cursor, term int64, p progress, f *faults) error {
	if err := f.fail(OpSettle); err != nil {
		return err
	}
	if c.owner != m || c.term != term || c.epoch != p.epoch {
		return errFenced
	}
	c.commit(p.committed, p.done, p.runs)
	return nil
}

// settle sends acks and give-backs of a stream. It does not ask who holds the messages: neither does JetStream.
func (m *member) settle(b *batch, now time.Time, f *faults) error {
	if err := f.fail(OpSettle); err != nil {
		return err
	}
	c := b.h.cur
	if c.epoch != b.h.epoch {
		return errFenced
	}
	for _, o := range b.acks {
		c.leases.finish(o, now.UnixNano())
	}
	for _, back := range b.backs {
		c.leases.giveBack(back.offset, now.Add(back.delay).UnixNano(), back.runs)
	}
	c.remember(c.leases.floor)
	if len(b.backs) > 0 {
		m.g.b.wake()
	}
	return nil
}

// collect takes what is to be sent of a holding; it needs s.mu.
func (h *holding) collect() *batch {
	b := &batch{h: h, term: h.term, promised: h.promised}
	h.dirty = false
	if h.s.b.stream != nil {
		b.acks, b.backs = h.acks, h.backs
		h.acks, h.backs = nil, nil
		return b
	}
	b.p = h.snapshot()
	return b
}

// send runs at the broker.
func (s *Source) send(b *batch, now time.Time) {
	if s.b.stream != nil {
		b.err = s.m.settle(b, now, &s.b.faults)
		if b.err == nil {
			b.backs = nil // sent: a second time could pull them from who has them then
		}
		return
	}
	b.err = s.m.commit(b.h.cur, b.term, b.p, &s.b.faults)
}

// flush sends all settles. It returns when to try again what failed.
func (s *Source) flush(now time.Time) (next time.Time) {
	s.mu.Lock()
	s.flushing = false
	var bs []*batch
	for _, h := range s.holdings {
		if h.dirty {
			bs = append(bs, h.collect())
		}
	}
	s.mu.Unlock()
	if len(bs) == 0 {
		return next
	}
	var at time.Time
	err := s.exchange(func(now time.Time) error {
		at = now
		for _, b := range bs {
			s.send(b, now)
		}
		return nil
	})
	for _, b := range bs {
		s.sent(b, err)
	}
	if err == nil {
		s.refreshLag(at, 0)
	}
	return next
}

// sent takes note of what became of a batch. What failed is sent again after a while.
func (s *Source) sent(b *batch, err error) {
	if err == nil {
		err = b.err
	}
	if errors.Is(err, errFenced) {
		s.beatAt = time.Time{} // the broker has more to say about it
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.b.stream != nil {
			b.h.promised -= b.promised
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		b.h.promised -= b.promised
		return
	}
	b.h.acks = append(b.acks, b.h.acks...)
	b.h.backs = append(b.backs, b.h.backs...)
	b.h.dirty = true
	s.flushing = true
	s.flushTimer.Reset(retryEvery)
}

// shutdown is Close's work: fence, end the claims, give back, last commit, leave.
func (s *Source) shutdown() {
	if s.mutant.is(commitThenEndAtClose) {
		s.flush(time.Now())
	}
	s.mu.Lock()
	var bs []*batch
	var over []*claimState
	for _, h := range s.holdings {
		h.giveBackAll()
	}
	over = append(over, s.revoking...)
	for _, h := range s.holdings {
		if !h.claim.shut {
			over = append(over, h.claim)
		}
	}
	for _, cs := range over {
		cs.fence()
	}
	for _, h := range s.holdings {
		bs = append(bs, h.collect())
	}
	for _, e := range s.ending {
		bs = append(bs, &batch{h: e.h, term: e.h.term, p: e.p, promised: e.h.promised})
	}
	if s.mutant.is(commitThenEndAtClose) {
		bs = nil
	}
	s.revoking, s.holdings = nil, nil
	s.mu.Unlock()
	cause := fmt.Errorf("membroker: source closed: %w", broker.ErrClosed)
	for _, cs := range over {
		cs.keeper.End(cause)
		s.tell(broker.Event{Kind: broker.Ended, Claim: cs.claim, Err: cause})
	}
	s.emit()
	err := s.lastExchange(bs)
	s.mu.Lock()
	s.phase, s.closeErr = closed, err
	s.mu.Unlock()
	for _, b := range bs {
		if b.err != nil && b.h.claim != nil {
			s.unconfirmed(b.h.claim.claim, b.promised, b.err)
		}
	}
	s.emit()
}

// giveBackAll gives back the prefetch and what is out and never was settled, where somebody must be told. What has lost its lease
// is not.
func (h *holding) giveBackAll() {
	if h.s.b.stream == nil {
		return
	}
	h.dropPrefetch()
	for o := h.w.lo; o < h.w.hi && !h.s.leaseLost; o++ {
		if h.w.at(o).state == out {
			h.backs = append(h.backs, leasedBack{offset: o})
		}
	}
}

// lastExchange sends what is left and leaves the group, by repeated tries until Close's ctx ends.
func (s *Source) lastExchange(bs []*batch) error {
	for {
		err := s.exchange(func(now time.Time) error {
			for _, b := range bs {
				if s.mutant.is(closeWithoutCommit) {
					break
				}
				if s.send(b, now); b.err != nil && !errors.Is(b.err, errFenced) {
					return b.err
				}
			}
			s.m.leave()
			return nil
		})
		if err == nil {
			return nil
		}
		t := time.NewTimer(retryEvery)
		select {
		case <-t.C:
		case <-s.link.killed:
			t.Stop()
			return errKilled
		case <-s.abort:
			t.Stop()
			return s.gaveUp(bs, err)
		}
	}
}

func (s *Source) gaveUp(bs []*batch, err error) error {
	for _, b := range bs {
		b.err = err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("membroker: closing: %w (last try: %w)", s.abortErr, err)
}

// die is Kill's: nothing is sent, but whoever waits for the claims must not wait for ever.
func (s *Source) die() {
	s.mu.Lock()
	over := append([]*claimState(nil), s.revoking...)
	for _, h := range s.holdings {
		if !h.claim.shut {
			over = append(over, h.claim)
		}
	}
	for _, cs := range over {
		cs.fence()
	}
	s.revoking, s.holdings, s.phase = nil, nil, closed
	s.mu.Unlock()
	for _, cs := range over {
		cs.keeper.End(fmt.Errorf("%w: %w", errKilled, broker.ErrLost))
	}
}
