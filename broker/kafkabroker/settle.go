package kafkabroker

import (
	"errors"

	"github.com/longshoremq/longshore/broker"
)

var errForeign = errors.New("kafkabroker: settling: the claim is of another source")

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
		s.outN--
		s.outBytes -= int64(size)
	case settledLost:
		*lost = true
		if p.tr.wasOrphan {
			s.outN--
			s.outBytes -= int64(size)
			o, _ := splitToken(tok)
			p.settleStray(o)
		}
	case settledBefore:
		*twice = true
	}
}

// verdict does what each settle ends with; it needs s.mu.
func (s *Source) verdict(p *part, lost, twice bool) error {
	if s.starved {
		s.starved = false
		signal(s.wake)
		signal(s.kick)
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
