package kafkabroker

import (
	"fmt"

	"github.com/longshoremq/longshore/broker"
)

var errForeign = fmt.Errorf("kafkabroker: settling: %w", broker.ErrForeign)

// Ack settles messages as handled. See broker.Source.
func (s *Source) Ack(c *broker.Claim, tokens []uint64) error {
	p, ok := c.State.(*part)
	if !ok || p.s != s {
		return errForeign
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var lost, twice bool
	before := p.tr.acked
	for _, t := range tokens {
		how, size := p.tr.ack(t)
		s.settled(p, t, how, size, &lost, &twice)
		if how == settledNow && p.mark == running {
			p.cleared(true)
		}
	}
	s.count(p.tr.acked - before)
	return s.verdict(p, lost, twice)
}

// count adds finished messages, and wakes the committer when they are enough for a commit of their own; it needs s.mu.
func (s *Source) count(n int64) {
	enough := int64(s.cfg.CommitMessages)
	if s.finished < enough && s.finished+n >= enough {
		signal(s.flush)
	}
	s.finished += n
}

// Nack gives messages back: they are fetched again while the claim is open. See broker.Source.
func (s *Source) Nack(c *broker.Claim, backs []broker.Back) error {
	p, ok := c.State.(*part)
	if !ok || p.s != s {
		return errForeign
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var lost, twice bool
	lowest := int64(-1)
	for _, b := range backs {
		how, size := p.tr.giveBack(b.Token, b.Runs)
		s.settled(p, b.Token, how, size, &lost, &twice)
		if how == settledNow && p.mark == running {
			p.cleared(false)
		}
		if o, _ := splitToken(b.Token); how == settledNow && (lowest < 0 || o < lowest) {
			lowest = o
		}
	}
	if lowest >= 0 {
		p.rewind(lowest)
		signal(s.kick)
	}
	return s.verdict(p, lost, twice)
}

func (s *Source) settled(p *part, tok uint64, how settling, size uint32, lost, twice *bool) {
	switch how {
	case settledNow:
		s.gate.Free(1, int64(size))
	case settledLost:
		*lost = true
		if p.tr.wasOrphan {
			s.gate.Free(1, int64(size))
			o, _ := splitToken(tok)
			p.settleStale(o)
		}
	case settledBefore:
		*twice = true
	}
}

// verdict does what each settle ends with; it needs s.mu.
func (s *Source) verdict(p *part, lost, twice bool) error {
	wake, soon := s.gate.Feed()
	if wake {
		signal(s.wake)
	}
	if wake || soon {
		signal(s.kick)
	}
	if s.gate.Out() == 0 && s.wary > 0 {
		signal(s.wake)
	}
	if p.shut && p.tr.outN == 0 {
		signal(s.kick)
	}
	p.thaw()
	switch {
	case lost:
		return broker.ErrLost
	case twice:
		return broker.ErrSettled
	}
	return nil
}
