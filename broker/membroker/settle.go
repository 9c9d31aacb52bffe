package membroker

import (
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

var errForeign = fmt.Errorf("membroker: settling: %w", broker.ErrForeign)

// Ack settles messages as handled. See broker.Source.
func (s *Source) Ack(c *broker.Claim, tokens []uint64) error {
	cs, ok := c.State.(*claimState)
	if !ok || cs.h.s != s {
		if s.mutant.is(foreignSettled) {
			return nil
		}
		return errForeign
	}
	if s.mutant.is(ackWaits) {
		_ = s.exchange(func(time.Time) error { return nil })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, lost, twice := 0, 0, false
	for _, t := range tokens {
		switch sl, o := cs.settle(t, done); {
		case sl == settledNow:
			n++
			if s.b.stream != nil {
				cs.h.acks = append(cs.h.acks, o)
			}
			if len(cs.h.runs) > 0 {
				delete(cs.h.runs, o)
			}
		case sl == settledLate:
			lost++
			if s.b.stream != nil && !s.mutant.is(lateAckDropped) {
				cs.h.acks = append(cs.h.acks, o) // of use still: it spares the next holder the work
			}
		case sl == settledLost:
			lost++
		default:
			twice = true
		}
	}
	return s.settled(cs, n, lost, twice)
}

// Nack gives messages back. See broker.Source.
func (s *Source) Nack(c *broker.Claim, backs []broker.Back) error {
	cs, ok := c.State.(*claimState)
	if !ok || cs.h.s != s {
		if s.mutant.is(foreignSettled) {
			return nil
		}
		return errForeign
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, lost, twice := 0, 0, false
	lowest := int64(-1)
	for _, b := range backs {
		switch how, o := cs.settle(b.Token, back); {
		case how == settledNow && s.traits.AtMostOnce:
			lost++
		case how == settledNow:
			n++
			cs.giveBack(o, b)
			if lowest < 0 || o < lowest {
				lowest = o
			}
		case how == settledLate || how == settledLost:
			lost++
		default:
			twice = true
		}
	}
	if lowest >= 0 && s.b.stream == nil {
		cs.h.rewind(lowest)
		signal(s.wake)
	}
	return s.settled(cs, n, lost, twice)
}

// giveBack notes what is to be sent, or kept, of a message that was given back.
func (cs *claimState) giveBack(o int64, b broker.Back) {
	h := cs.h
	if h.s.mutant.is(countGiveBacks) {
		b.Runs++
	}
	if h.s.mutant.is(nackEarly) {
		b.Delay = 0
	}
	if h.s.b.stream != nil {
		h.backs = append(h.backs, leasedBack{offset: o, delay: max(0, b.Delay), runs: b.Runs})
		return
	}
	if b.Runs > 0 {
		h.runs[o] = max(h.runs[o], b.Runs)
	}
}

// settled does what each settle ends with; it needs s.mu.
func (s *Source) settled(cs *claimState, n, lost int, twice bool) error {
	if n > 0 {
		cs.h.promised += int64(n)
		cs.h.advance()
	}
	if n+lost > 0 {
		s.dirtied(cs.h)
	}
	if cs.shut && cs.out == 0 {
		signal(s.kick)
	}
	if s.starved {
		s.starved = false
		signal(s.wake)
	}
	switch {
	case lost > 0 && s.mutant.is(lostSilently), twice && s.mutant.is(settleTwice):
		return nil
	case lost > 0:
		return &broker.LostError{N: lost}
	case twice:
		return broker.ErrSettled
	}
	return nil
}

type settling int

const (
	settledBefore settling = iota
	settledNow
	settledLate // its lease had run out
	settledLost // its claim has ended
)

// settle moves a message from out to a state, and frees its budget.
func (cs *claimState) settle(t uint64, to uint8) (settling, int64) {
	h := cs.h
	o, gen := splitToken(t)
	if cs.fenced {
		if size, found := cs.orphans[t]; found {
			delete(cs.orphans, t)
			h.settleStray(o)
			h.s.freeLate(int64(size))
		}
		return settledLost, o
	}
	sl := h.w.get(o)
	if sl == nil || sl.gen != gen || sl.claim != cs.no || sl.state != out && sl.state != expired {
		return settledBefore, o
	}
	how := settledNow
	if sl.state == expired || h.s.leaseLost {
		how = settledLate
	}
	sl.state = to
	if to == back {
		sl.gen++
	}
	if cs.out--; cs.out == 0 && cs != h.claim {
		signal(h.s.wake) // for what stands behind it
	}
	if how == settledLate {
		h.s.freeLate(int64(sl.size))
	} else {
		h.s.free(1, int64(sl.size))
	}
	return how, o
}

// freeLate is free of a message whose settle says ErrLost.
func (s *Source) freeLate(bytes int64) {
	if !s.mutant.is(lateKeepsBudget) {
		s.free(1, bytes)
	}
}

func (s *Source) free(n int, bytes int64) {
	s.outN -= n
	s.outBytes -= bytes
}

// dirtied lets the loop send the holding's settles soon; it needs s.mu.
func (s *Source) dirtied(h *holding) {
	h.dirty = true
	if !s.flushing && s.flushTimer != nil {
		s.flushing = true
		s.flushTimer.Reset(s.cfg.CommitInterval)
	}
}

// settleEarly is a mutant's.
func (s *Source) settleEarly(h *holding, sp span) {
	for o := sp.from; o < sp.from+sp.n; o++ {
		h.w.at(o).state = done
		h.acks = append(h.acks, o)
	}
	h.advance()
	s.dirtied(h)
}
