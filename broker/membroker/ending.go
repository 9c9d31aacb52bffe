package membroker

import (
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// An ending is a partition whose claim has ended and that must still be committed and released.
type ending struct {
	h   *holding
	cs  *claimState // nil: it never began
	p   progress
	due time.Time
}

// revoke announces the claim's end. Receive hands out nothing of it from here on.
func (s *Source) revoke(cs *claimState) {
	by := time.Now().Add(s.cfg.RevokeWait)
	s.mu.Lock()
	if cs.shut {
		s.mu.Unlock()
		return
	}
	cs.shut, cs.by = true, by
	s.revoking = append(s.revoking, cs)
	s.mu.Unlock()
	cs.keeper.Revoke(by)
}

// finishRevoked ends the claims that have nothing out any more, or whose time is over. It returns when it must look again.
func (s *Source) finishRevoked(now time.Time) (next time.Time) {
	var over []*claimState
	s.mu.Lock()
	if len(s.revoking) == 0 {
		s.mu.Unlock()
		return next
	}
	rest, waits := s.revoking[:0], make(map[*holding]bool)
	for _, cs := range s.revoking {
		switch {
		case waits[cs.h]:
			// Older claims come first in the list: the holding's last claim ends, and is released, after them. Else what is acked through
			// an old one after that would never be committed.
		case cs.out == 0 || !now.Before(cs.by):
			over = append(over, cs)
			continue
		default:
			next = earlier(next, cs.by)
		}
		waits[cs.h] = true
		rest = append(rest, cs)
	}
	s.revoking = rest
	s.mu.Unlock()
	for _, cs := range over {
		s.finish(cs)
	}
	return next
}

// finish ends a revoked claim: fence, End, then the last commit and the release, which may take several tries.
func (s *Source) finish(cs *claimState) {
	e := &ending{h: cs.h, cs: cs}
	if s.mutant.is(commitThenEnd) {
		s.commitFirst(e)
	}
	s.mu.Lock()
	last := cs.h.claim == cs
	cs.fence()
	if last {
		s.drop(cs.h)
		if !s.mutant.is(commitThenEnd) {
			e.p = cs.h.snapshot()
		}
	} else if s.b.stream == nil {
		cs.h.rewind(cs.h.floor) // what was still out comes under the next claim
	}
	s.mu.Unlock()
	cs.keeper.End(fmt.Errorf("membroker: revoked: %w", broker.ErrLost))
	s.tell(broker.Event{Kind: broker.Ended, Claim: cs.claim, Err: broker.ErrLost})
	if last {
		s.ending = append(s.ending, e)
	}
	signal(s.wake)
}

func (s *Source) tell(e broker.Event) {
	s.mu.Lock()
	s.say(e)
	s.mu.Unlock()
}

// commitFirst is a mutant's.
func (s *Source) commitFirst(e *ending) {
	s.mu.Lock()
	e.p = e.h.snapshot()
	e.h.promised = 0
	s.mu.Unlock()
	_ = s.exchange(func(time.Time) error { return s.m.commit(e.h.cur, e.h.term, e.p, &s.b.faults) })
}

// fence makes settles say ErrLost from here on. What is out keeps its budget until it is settled.
func (cs *claimState) fence() {
	cs.fenced, cs.shut = true, true
	cs.orphans = make(map[uint64]uint32)
	w := &cs.h.w
	for o := w.lo; o < w.hi && cs.out > 0; o++ {
		sl := w.at(o)
		if sl.claim != cs.no || sl.state != out && sl.state != expired {
			continue
		}
		if cs.h.s.mutant.is(freeAtEnd) {
			cs.h.s.free(1, int64(sl.size))
		} else {
			cs.orphans[token(o, sl.gen)] = sl.size
			cs.h.strays[o]++
		}
		sl.state = back
		sl.gen++
		cs.out--
	}
}

// drop takes the holding from Receive; it needs s.mu.
func (s *Source) drop(h *holding) {
	h.forgetPrefetch()
	for i, x := range s.holdings {
		if x == h {
			s.holdings = append(s.holdings[:i:i], s.holdings[i+1:]...)
			return
		}
	}
}

// snapshot is what to commit.
func (h *holding) snapshot() progress {
	p := progress{committed: h.floor, done: h.finished(), epoch: h.epoch}
	if len(h.runs) > 0 {
		p.runs = make(map[int64]int32, len(h.runs))
		for o, n := range h.runs {
			p.runs[o] = n
		}
	}
	return p
}

// lose ends the claims of a holding that is somebody else's already.
func (s *Source) lose(h *holding, cause error) {
	s.mu.Lock()
	var over []*claimState
	rest := s.revoking[:0]
	for _, cs := range s.revoking {
		if cs.h == h && cs != h.claim {
			over = append(over, cs)
		} else if cs.h != h {
			rest = append(rest, cs)
		}
	}
	s.revoking = rest
	over = append(over, h.claim)
	for _, cs := range over {
		cs.fence()
	}
	s.drop(h)
	promised := h.promised
	h.promised = 0
	s.mu.Unlock()
	for _, cs := range over {
		cs.keeper.End(fmt.Errorf("membroker: %w: %w", cause, broker.ErrLost))
		s.tell(broker.Event{Kind: broker.Ended, Claim: cs.claim, Err: fmt.Errorf("membroker: %w: %w", cause, broker.ErrLost)})
	}
	s.unconfirmed(h.claim.claim, promised, cause)
	signal(s.wake)
}

func (s *Source) unconfirmed(c *broker.Claim, n int64, cause error) {
	if n > 0 && !s.mutant.is(lostSilently|neverUnconfirmed) {
		s.tell(broker.Event{Kind: broker.Unconfirmed, Claim: c, N: n, Err: cause})
	}
}

// release commits and releases what has ended. It returns when to try again.
func (s *Source) release(now time.Time) (next time.Time) {
	rest := s.ending[:0]
	for _, e := range s.ending {
		if now.Before(e.due) || !s.releaseOne(e, now) {
			rest = append(rest, e)
			next = earlier(next, e.due)
		}
	}
	s.ending = rest
	return next
}

func (s *Source) releaseOne(e *ending, now time.Time) bool {
	err := s.exchange(func(time.Time) error {
		if err := s.m.commit(e.h.cur, e.h.term, e.p, &s.b.faults); err != nil {
			return err
		}
		if e.cs == nil {
			s.m.decline(e.h.cur, e.h.term)
		} else {
			s.m.release(e.h.cur, e.h.term)
		}
		return nil
	})
	switch {
	case errors.Is(err, errFenced):
		if e.cs != nil {
			s.unconfirmed(e.cs.claim, e.h.promised, err)
		}
		return true
	case err != nil:
		e.due = now.Add(retryEvery)
		return false
	}
	return true
}

// returnPrefetch gives back what Receive will not return any more.
func (s *Source) returnPrefetch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holdings {
		if len(h.spans) == 0 || !(s.stopped || s.pausedHolding(h)) || s.keepsOrder() {
			continue
		}
		if !s.stopped {
			s.putBackOne(h)
			continue
		}
		if s.mutant.is(stopLosesBuffer) {
			h.loseBuffer()
			continue
		}
		h.dropPrefetch()
	}
	for _, h := range s.holdings {
		if len(h.backs) > 0 {
			s.dirtied(h)
		}
	}
}

// keepsOrder says whether something is out that the prefetch stands behind, and may not go back before; it needs s.mu.
func (s *Source) keepsOrder() bool { return s.o.Ordered && s.outN > 0 && !s.mutant.is(orderedIgnored) }

// loseBuffer is a mutant's.
func (h *holding) loseBuffer() {
	for _, sp := range h.spans {
		if h.s.b.stream == nil {
			h.w.extend(sp.from, sp.from+sp.n)
			for o := sp.from; o < sp.from+sp.n; o++ {
				h.w.at(o).state = done
			}
			h.dirty = true
		}
	}
	h.forgetPrefetch()
}
