package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A spy stands between the engine and a source, and sees what the contract says of both: what was handed out is settled once, and
// not handed out again before that, nor after an ack that holds; never more is out than the budget has; what is settled under a
// claim that has ended is lost; and events come in an order that makes sense.
type spy struct {
	broker.Source
	p     *process
	group string

	mu      sync.Mutex
	budgets budgets
	out     map[*broker.Claim]map[uint64]place
	outN    int
	bytes   int64 // keys and values of what is out
	// mostBytes is the budget of bytes, which does not change.
	mostBytes int64
	here      map[place]bool           // what is out
	acked     map[place]time.Time      // acks that said nil, since settles were last told as unconfirmed
	doubts    int                      // how often they were
	claims    map[*broker.Claim]string // assigned or ended
	isUp      bool
	downAt    time.Time
	stopAt    time.Time // zero: it goes on
}

// A place is where a message stands. A topic that was made anew has others there.
type place struct {
	topic     string
	partition int32
	offset    int64
	value     string
	bytes     int64
}

func placeOf(m *broker.Message) place {
	return place{m.Topic, m.Partition, m.Offset, nameOf(m.Value), int64(len(m.Key) + len(m.Value))}
}

// watch puts a spy before a source. It has the abilities that the source has.
func watch(p *process, group string, src broker.Source) (broker.Source, *spy) {
	s := &spy{
		Source: src, p: p, group: group, out: map[*broker.Claim]map[uint64]place{}, here: map[place]bool{},
		acked: map[place]time.Time{}, claims: map[*broker.Claim]string{},
	}
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

// Lapsed is the source's, where it has leases.
func (s *spy) Lapsed(c *broker.Claim, token uint64) bool {
	l, ok := s.Source.(broker.LeaseReporter)
	return ok && l.Lapsed(c, token)
}

// SetBudget is the source's, within what the spy holds it at.
func (s *spy) SetBudget(b broker.Budget) {
	s.budgets.mu.Lock()
	defer s.budgets.mu.Unlock()
	s.budgets.wanted = b
	s.rebudget()
}

// hold lets the source have n messages out at most; 0: as many as the engine wants.
func (s *spy) hold(n int) {
	s.budgets.mu.Lock()
	defer s.budgets.mu.Unlock()
	s.budgets.most = n
	s.rebudget()
}

// rebudget needs budgets.mu.
func (s *spy) rebudget() {
	if s.budgets.opened {
		s.Source.(abilities).SetBudget(s.budgets.set(s.p.run.kind.Asked))
	}
}

// Open is the source's.
func (s *spy) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	s.budgets.mu.Lock()
	s.budgets.wanted, s.mostBytes = o.Budget, o.Budget.Bytes
	o.Budget = s.budgets.set(0)
	s.budgets.mu.Unlock()
	observe := o.Observe
	o.Observe = func(e broker.Event) {
		s.see(e)
		observe(e)
	}
	t, err := s.Source.Open(ctx, o)
	s.budgets.mu.Lock()
	defer s.budgets.mu.Unlock()
	s.budgets.opened = err == nil
	s.rebudget() // it may have been held meanwhile
	return t, err
}

// budgets are a source's, one after the other.
type budgets struct {
	mu     sync.Mutex
	opened bool
	wanted broker.Budget // by the engine
	most   int           // 0: as many as that
	now    int
	// before are messages of a larger budget that may come until then, for they were asked for.
	before int
	until  time.Time
}

// set is the budget from now on; asked is how long what was asked for may still come. It needs mu.
func (b *budgets) set(asked time.Duration) broker.Budget {
	set := b.wanted
	if b.most > 0 {
		set.Messages = min(set.Messages, b.most)
	}
	if set.Messages < b.now {
		b.before, b.until = b.bound(), time.Now().Add(asked)
	}
	b.now = set.Messages
	return set
}

// bound is how many messages may be out. It needs mu.
func (b *budgets) bound() int {
	if time.Now().After(b.until) {
		return b.now
	}
	return max(b.before, b.now)
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
	s.budgets.mu.Lock()
	most := s.budgets.bound()
	s.budgets.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.bytes >= s.mostBytes {
		s.p.run.book.find("%s has messages of %d bytes out, was given more, and its budget is %d", s.p.name, s.bytes, s.mostBytes)
	}
	for i := range dst[:n] {
		s.handOut(&dst[i])
	}
	if n > 0 && s.outN > most {
		s.p.run.book.find("%s has %d messages out, its budget is %d", s.p.name, s.outN, most)
	}
	return n, err
}

// handOut needs s.mu.
func (s *spy) handOut(m *broker.Message) {
	b, c, at := s.p.run.book, m.Claim, placeOf(m)
	if s.out[c] == nil {
		s.out[c] = map[uint64]place{}
	}
	if _, out := s.out[c][m.Token]; out || s.here[at] {
		b.find("%s: %s/%d at %d was handed out while it is out", s.p.name, m.Topic, m.Partition, m.Offset)
	}
	// Where a group assigns by heartbeats, who does not know yet that a topic was made anew may set back those who do: the next one
	// begins the new topic anew.
	setBack := s.p.run.schedule.Settings.Assigned && b.restarted(m.Topic, m.Partition, s.acked[at])
	if !s.acked[at].IsZero() && !setBack {
		b.find("%s: %s/%d at %d was acked, and handed out again", s.p.name, m.Topic, m.Partition, m.Offset)
	}
	if s.claims[c] == "" {
		b.find("%s: a message of %s/%d came before its claim was assigned", s.p.name, m.Topic, m.Partition)
		s.claims[c] = "handed out"
	}
	if _, out := s.out[c][m.Token]; !out {
		s.out[c][m.Token] = at
		s.outN++
		s.bytes += at.bytes
	}
	s.here[at] = true
}

// Ack is the source's.
func (s *spy) Ack(c *broker.Claim, tokens []uint64) error {
	places, lost := s.settle(c, tokens), s.lost(c)
	doubts := s.doubted()
	defer s.promptly("Ack")()
	err := s.Source.Ack(c, tokens)
	s.settled(c, lost, err)
	s.holds(places, doubts, err)
	return err
}

// doubted is how often settles were told as unconfirmed.
func (s *spy) doubted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doubts
}

// holds notes acks that said nil. Where settles were told as unconfirmed meanwhile, these may be among them: the source may lose
// what it has just taken before we hear that it took it.
func (s *spy) holds(places []place, doubts int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range places {
		if err == nil && s.doubts == doubts {
			s.acked[at] = time.Now()
		}
	}
}

// Nack is the source's.
func (s *spy) Nack(c *broker.Claim, back []broker.Back) error {
	tokens := make([]uint64, len(back))
	for i := range back {
		tokens[i] = back[i].Token
	}
	s.p.run.book.gaveBack(c, s.settle(c, tokens))
	lost := s.lost(c)
	defer s.promptly("Nack")()
	err := s.Source.Nack(c, back)
	s.settled(c, lost, err)
	return err
}

// promptly looks whether a call that must not wait for anybody takes time.
func (s *spy) promptly(call string) (over func()) {
	began := time.Now()
	return func() {
		if took := time.Since(began); took > instant {
			s.p.run.book.find("%s: %s took %v", s.p.name, call, took)
		}
	}
}

// settle is called before the source hears of it, since it may hand the message out again at once.
func (s *spy) settle(c *broker.Claim, tokens []uint64) (places []place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, token := range tokens {
		at, out := s.out[c][token]
		if !out {
			s.p.run.book.find("%s: the engine settled a message twice, or one that it was not given", s.p.name)
			continue
		}
		delete(s.out[c], token)
		delete(s.here, at)
		s.outN--
		s.bytes -= at.bytes
		places = append(places, at)
	}
	return places
}

// lost says why a settle under a claim has to say ErrLost: the claim has ended, or the leases of all that is out have run out,
// for nothing was heard of the broker for longer. "": it has not.
func (s *spy) lost(c *broker.Claim) string {
	if over(c) {
		return "that has ended"
	}
	if s.p.run.kind.Shared && s.p.unheard() > s.p.run.lease()+settleWithin {
		return "by a lease that has run out"
	}
	return ""
}

// settled looks at what a settle says. lost: why it has to say ErrLost.
func (s *spy) settled(c *broker.Claim, lost string, err error) {
	switch said := errors.Is(err, broker.ErrLost); {
	case err != nil && !said:
		s.p.run.book.find("%s: a settle says %v", s.p.name, err)
	case lost != "" && !said && !s.p.isDead():
		s.p.run.book.find("%s: a settle under a claim of %s/%d %s says nil", s.p.name, c.Topic, c.Partition, lost)
	}
}

// reasoned are the events that say why.
var reasoned = []broker.Kind{broker.Ended, broker.Down, broker.Unconfirmed, broker.Warning, broker.Notice}

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
	if e.Err == nil && slices.Contains(reasoned, e.Kind) {
		b.find("%s heard %v, and not why", s.p.name, e.Kind)
	}
	switch e.Kind {
	case broker.Assigned:
		if s.claims[e.Claim] != "" {
			b.find("%s: a claim%s was assigned that is %s", s.p.name, where, s.claims[e.Claim])
		}
		if !s.stopAt.IsZero() && now.Sub(s.stopAt) > instant {
			b.find("%s: a claim%s was assigned %v after Stop", s.p.name, where, now.Sub(s.stopAt))
		}
		s.claims[e.Claim] = "assigned"
		s.p.run.own(e.Claim, s.p)
	case broker.Ended:
		if s.claims[e.Claim] != "assigned" {
			b.find("%s: a claim%s has ended that is %q", s.p.name, where, s.claims[e.Claim])
		}
		s.claims[e.Claim] = "ended"
	case broker.Gap:
		if e.Claim != nil && e.N < 0 {
			b.restart(e.Claim.Topic, e.Claim.Partition)
		}
	case broker.Unconfirmed:
		clear(s.acked) // which, it does not say
		s.doubts++
		b.doubt(s.p, e.Claim)
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

// instant is what may lie between two things that happen at once.
const instant = time.Millisecond

// Stop is the source's.
func (s *spy) Stop() {
	defer s.promptly("Stop")()
	s.Source.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopAt.IsZero() {
		s.stopAt = time.Now()
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
	r.had[c.Topic] = append(r.had[c.Topic], p)
}
