package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// An output is what a run of a handler emitted. Its value says of which message, in which run, and which one it is, so that what
// a run that failed has left is told from what the run emitted that came after it.
type output struct{ message, nth, index int }

// value is the value of an output, by which it is known.
func (o output) value() []byte { return fmt.Appendf(nil, "o%d.%d.%d", o.message, o.nth, o.index) }

// String is as in the value.
func (o output) String() string { return string(o.value()) }

// outputOf is the output with that value; false: it is none of ours.
func outputOf(value []byte) (o output, ours bool) {
	n, err := fmt.Sscanf(string(value), "o%d.%d.%d", &o.message, &o.nth, &o.index)
	return o, n == 3 && err == nil && string(o.value()) == string(value)
}

// makes is how many outputs each run for a message emits: of the seed and the message alone.
func (s Schedule) makes(message int) int {
	return rand.New(rand.NewPCG(s.Seed, 1<<48|uint64(message))).IntN(s.Settings.Emits + 1)
}

// emit emits the outputs of a run from one to another. A run emits half of them at its begin, and the others at its end, whatever
// it returns then: who fails, or panics, has emitted.
func (p *process) emit(ctx context.Context, m *consumer.Message, e *entry, from, to int) (err error) {
	for i := from; i < to && err == nil; i++ {
		o := broker.Outgoing{Topic: outputTopic, Key: m.Key, Value: output{e.message, e.nth, i}.value()}
		if e.batch == nil {
			err = consumer.Emit(ctx, o)
		} else {
			err = consumer.EmitFor(ctx, m, o)
		}
	}
	if errors.Is(err, broker.ErrNoTopic) && p.run.schedule.isMissing(outputTopic) {
		p.run.book.misses(e)
	} else if err != nil && ctx.Err() == nil {
		p.run.book.find("%s: run %d of m%d cannot emit: %v", p.name, e.nth, e.message, err)
	}
	return err
}

// emitBegun and emitEnded are the two halves.
func (p *process) emitBegun(ctx context.Context, m *consumer.Message, e *entry) error {
	return p.emit(ctx, m, e, 0, p.run.schedule.makes(e.message)/2)
}

func (p *process) emitEnded(ctx context.Context, m *consumer.Message, e *entry) error {
	n := p.run.schedule.makes(e.message)
	return p.emit(ctx, m, e, n/2, n)
}

// An offer is an output that the engine gave to a source, with an ack.
type offer struct {
	process *process
	claim   *broker.Claim
	// asked and said are the stamps before the call and after it.
	asked, said int64
	// holds: it said nil. lost: it said that the message was lost, of this one for certain.
	holds, lost bool
	// doubted: settles of its partition were told as unconfirmed since.
	doubted bool
}

// AckEmitting is the source's.
func (s *spy) AckEmitting(c *broker.Claim, es []broker.Emission) error {
	var tokens []uint64
	for _, e := range es {
		tokens = append(tokens, e.Tokens...)
	}
	places, lost, ended := s.settle(c, tokens), s.lost(c), over(c)
	doubts := s.doubted()
	x := offer{process: s.p, claim: c, asked: s.p.run.book.stamp()}
	offers := s.p.run.book.offer(x, es)
	defer s.promptly("AckEmitting")()
	err := s.Source.(broker.Emitter).AckEmitting(c, es)
	x.holds, x.lost = err == nil, errors.Is(err, broker.ErrLost) && (ended || len(tokens) == 1)
	s.p.run.book.offered(x, offers, es)
	s.settled(c, lost, err)
	s.holds(places, doubts, err)
	return err
}

// CheckEmit is the source's.
func (s *spy) CheckEmit(o *broker.Outgoing) error { return s.Source.(broker.Emitter).CheckEmit(o) }

// Carries is the source's.
func (s *spy) Carries(p broker.Publisher) bool { return s.Source.(broker.Emitter).Carries(p) }

// stamp is a point in the order of all that happened.
func (b *book) stamp() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now++
	return b.now
}

// offer enters what the engine is about to give to a source.
func (b *book) offer(x offer, es []broker.Emission) (offers []*offer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range es {
		for _, out := range e.Outs {
			o, ours := outputOf(out.Value)
			switch {
			case !ours || out.Topic != outputTopic: // a letter, or a copy for a retry topic
			case b.offers[o] != nil:
				b.findHere("%s: the engine acks with %v a second time", x.process.name, o)
			default:
				one := x
				b.offers[o] = &one
				offers = append(offers, &one)
			}
		}
	}
	return offers
}

// offered enters what the source said.
func (b *book) offered(x offer, offers []*offer, es []broker.Emission) {
	b.mu.Lock()
	b.now++
	for _, one := range offers {
		one.said, one.holds, one.lost = b.now, x.holds, x.lost
	}
	b.mu.Unlock()
	if !x.holds {
		return
	}
	for _, e := range es {
		for _, out := range e.Outs {
			if isLetterTopic(out.Topic) {
				b.letter(x.process, out)
			}
		}
	}
}

// doubt enters that a process has told that settles of a partition may not hold: those under the claim that it names, and those
// under an earlier one that has ended, where the partition came back before they were committed.
func (b *book) doubt(p *process, c *broker.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.offers {
		x.doubted = x.doubted || x.process == p && x.claim.Topic == c.Topic && x.claim.Partition == c.Partition
	}
}

// readEnd reads what is in the topics at the end, when nobody writes to them any more.
func (r *run) readEnd() error {
	if r.schedule.Settings.Emits == 0 {
		return r.readLetters()
	}
	for end := time.Now().Add(calmFor); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if n, _, err := r.world.Unsettled(); err == nil && n == 0 { // a transaction may be open until its timeout
			break
		}
	}
	var err error
	if r.outputs, err = r.world.Messages(outputTopic); err != nil {
		return fmt.Errorf("reading the outputs: %w", err)
	}
	for _, m := range r.outputs {
		r.book.note("there: %s/%d at %d: %s", m.Topic, m.Partition, m.Offset, m.Value)
	}
	return r.readLetters()
}
