package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A spy stands between the engine and a source, and sees what the contract says of both: what was handed out is settled once,
// never more is out than the budget has, and events come in an order that makes sense.
type spy struct {
	broker.Source
	p *process

	mu     sync.Mutex
	budget broker.Budget
	out    map[*broker.Claim]map[uint64]bool
	outN   int
	claims map[*broker.Claim]string // assigned or ended
	isUp   bool
	downAt time.Time
}

// watch puts a spy before a source. It has the abilities that the source has.
func watch(p *process, src broker.Source) (broker.Source, *spy) {
	s := &spy{Source: src, p: p, out: map[*broker.Claim]map[uint64]bool{}, claims: map[*broker.Claim]string{}}
	of, partitions := src.(interface {
		broker.PartitionLagReporter
		broker.Holder
		broker.Windowed
	})
	_, least := src.(abilities)
	if !least {
		panic(fmt.Sprintf("%T reports no lag, or cannot be paused, or has one budget for ever: the spy would hide it", src))
	}
	if partitions {
		return &partitionSpy{s, of, of, of}, s
	}
	return s, s
}

// abilities that every source has.
type abilities interface {
	broker.LagReporter
	broker.Pauser
	broker.Rebudgeter
}

// A partitionSpy is a spy before a source of partitions.
type partitionSpy struct {
	*spy
	lags interface {
		LagByPartition() []broker.PartitionLag
	}
	broker.Holder
	broker.Windowed
}

// LagByPartition is the source's.
func (s *partitionSpy) LagByPartition() []broker.PartitionLag { return s.lags.LagByPartition() }

// Lag is the source's.
func (s *spy) Lag() broker.Lag { return s.Source.(abilities).Lag() }

// Pause is the source's.
func (s *spy) Pause(topics ...string) error { return s.Source.(abilities).Pause(topics...) }

// Resume is the source's.
func (s *spy) Resume(topics ...string) error { return s.Source.(abilities).Resume(topics...) }

// SetBudget is the source's.
func (s *spy) SetBudget(b broker.Budget) {
	s.mu.Lock()
	s.budget.Messages = max(s.budget.Messages, b.Messages) // what is out already may be more than a smaller one
	s.mu.Unlock()
	s.Source.(abilities).SetBudget(b)
}

// Open is the source's.
func (s *spy) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	s.budget = o.Budget
	observe := o.Observe
	o.Observe = func(e broker.Event) {
		s.see(e)
		observe(e)
	}
	t, err := s.Source.Open(ctx, o)
	return t, err
}

// Receive is the source's.
func (s *spy) Receive(dst []broker.Message) (int, error) {
	n, err := s.Source.Receive(dst)
	if n > 0 && err != nil {
		s.p.run.book.find("%s: Receive returned messages and an error", s.p.name)
	}
	if n > 0 {
		s.p.run.book.handOut(s.p, dst[:n])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range dst[:n] {
		c, token := dst[i].Claim, dst[i].Token
		if s.out[c] == nil {
			s.out[c] = map[uint64]bool{}
		}
		if s.out[c][token] {
			s.p.run.book.find("%s: %s/%d at %d was handed out while it is out", s.p.name, dst[i].Topic, dst[i].Partition, dst[i].Offset)
			continue
		}
		if s.claims[c] == "" {
			s.p.run.book.find("%s: a message of %s/%d came before its claim was assigned", s.p.name, dst[i].Topic, dst[i].Partition)
			s.claims[c] = "handed out"
		}
		s.out[c][token] = true
		s.outN++
	}
	if s.outN > s.budget.Messages {
		s.p.run.book.find("%s has %d messages out, its budget is %d", s.p.name, s.outN, s.budget.Messages)
	}
	return n, err
}

// Ack is the source's.
func (s *spy) Ack(c *broker.Claim, tokens []uint64) error {
	s.settle(c, tokens)
	err := s.Source.Ack(c, tokens)
	s.settled(err)
	return err
}

// Nack is the source's.
func (s *spy) Nack(c *broker.Claim, back []broker.Back) error {
	tokens := make([]uint64, len(back))
	for i := range back {
		tokens[i] = back[i].Token
	}
	s.settle(c, tokens)
	err := s.Source.Nack(c, back)
	s.settled(err)
	return err
}

// settle is called before the source hears of it, since it may hand the message out again at once.
func (s *spy) settle(c *broker.Claim, tokens []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, token := range tokens {
		if !s.out[c][token] {
			s.p.run.book.find("%s: the engine settled a message twice, or one that it was not given", s.p.name)
			continue
		}
		delete(s.out[c], token)
		s.outN--
	}
}

func (s *spy) settled(err error) {
	if err != nil && !errors.Is(err, broker.ErrLost) {
		s.p.run.book.find("%s: a settle says %v", s.p.name, err)
	}
}

// see checks an event against those before it.
func (s *spy) see(e broker.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, now := s.p.run.book, time.Now()
	where := ""
	if e.Claim != nil {
		where = fmt.Sprintf(" %s/%d", e.Claim.Topic, e.Claim.Partition)
	}
	if s.p.isDead() {
		return // nobody hears it
	}
	b.note("%s hears %v%s n=%d %v", s.p.name, e.Kind, where, e.N, e.Err)
	switch e.Kind {
	case broker.Assigned:
		if s.claims[e.Claim] != "" {
			b.find("%s: a claim%s was assigned that is %s", s.p.name, where, s.claims[e.Claim])
		}
		s.claims[e.Claim] = "assigned"
		s.p.run.own(e.Claim, s.p)
	case broker.Ended:
		if s.claims[e.Claim] != "assigned" {
			b.find("%s: a claim%s has ended that is %q", s.p.name, where, s.claims[e.Claim])
		}
		s.claims[e.Claim] = "ended"
	case broker.Up:
		if s.isUp {
			b.find("%s heard up twice", s.p.name)
		}
		s.isUp = true
	case broker.Down:
		if !s.downAt.IsZero() && now.Sub(s.downAt) < time.Second {
			b.find("%s heard down twice within %v", s.p.name, now.Sub(s.downAt))
		}
		s.isUp, s.downAt = false, now
	}
}

// left says what the engine has not settled, and which claims have not ended.
func (s *spy) left() (unsettled, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, is := range s.claims {
		if is == "assigned" {
			open++
		}
	}
	return s.outN, open
}

// own writes down whose a partition is.
func (r *run) own(c *broker.Claim, p *process) {
	r.ownersMu.Lock()
	defer r.ownersMu.Unlock()
	r.owners[fmt.Sprintf("%s/%d", c.Topic, c.Partition)] = p
}
