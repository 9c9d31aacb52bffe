package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/ledger"
)

// A bridge publishes what handlers emit where that is no part of the ack: when the handler has returned nil, and before it. One
// that fails is a failed run.
type bridge struct {
	broker.Publisher
	p *process
}

// bridged is the publisher of outputs, where the settings say so.
func (p *process) bridged(cfg *consumer.Config) error {
	if !p.run.schedule.Settings.Bridge {
		return nil
	}
	pub, err := p.has.Publisher()
	if err != nil {
		return err
	}
	p.run.publishers = append(p.run.publishers, pub)
	cfg.Output = &bridge{pub, p}
	return nil
}

// noAnswer is when a publisher takes an answer for lost. The context of a handler may never end.
const noAnswer = 3 * time.Second

// Publish is the publisher's.
func (x *bridge) Publish(ctx context.Context, ms []broker.Outgoing) error {
	b := x.p.run.book
	for _, m := range ms {
		b.named(x.p, m)
	}
	limited, cancel := context.WithTimeout(ctx, noAnswer)
	defer cancel()
	err := x.Publisher.Publish(limited, ms)
	var each *broker.PublishError
	told := errors.As(err, &each)
	for i, m := range ms {
		of := err
		if told {
			of = each.Errs[i]
		}
		b.published(ctx, x.p, m, of)
	}
	return err
}

// named holds the IDs of outputs to what they are for: no two outputs have the same one, but for those of several runs.
func (b *book) named(p *process, m broker.Outgoing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ours := outputOf(m.Value)
	if o.nth = 0; !ours {
		b.findHere("%s publishes what nobody emitted: %q", p.name, m.Value)
		return
	}
	if was, known := b.ids[m.ID]; m.ID == "" || known && was != o {
		b.findHere("%s publishes output %d of m%d by the name %q, which is that of output %d of m%d", p.name, o.index, o.message,
			m.ID, was.index, was.message)
	}
	b.ids[m.ID] = o
}

// published enters what became of an output. Its run ends with that, and not with its handler; so do the others of its batch, of
// which nothing is acked before.
func (b *book) published(ctx context.Context, p *process, m broker.Outgoing, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, _ := outputOf(m.Value)
	for _, e := range b.entries {
		if e.message != o.message || e.nth != o.nth || p.isDead() {
			continue
		}
		b.endBatch(e)
		if err == nil || e.outcome != ledger.Done {
			continue
		}
		e.nowhere = errors.Is(err, broker.ErrNoTopic)
		b.failHere(ctx, e)
		b.noteHere("%s: run %d of m%d cannot publish %v: %v", p.name, e.nth, e.message, o, err)
	}
}

// failHere enters that a run has failed whose handler returned nil. It needs b.mu.
func (b *book) failHere(ctx context.Context, e *entry) {
	b.done[e.message]--
	e.failed, e.outcome = true, ledger.Failed
	if over(e.claim) || e.late && !errors.Is(context.Cause(ctx), consumer.ErrTimeout) || b.doneMeanwhile(e) {
		e.outcome = ledger.Cancelled
	}
	b.voidBehind(e)
}

// misses enters that the topic of a run's outputs is missing.
func (b *book) misses(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.nowhere = true
}

// unpublished enters that the last run of a message has failed, since the topic of its outputs is known to be missing: the
// publisher is not asked then.
func (b *book) unpublished(p *process, message int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range slices.Backward(b.entries) {
		if e.message != message || e.process != p {
			continue
		}
		if e.outcome == ledger.Done && e.act != Skip && !p.isDead() {
			e.nowhere = true
			b.failHere(e.ctx, e)
			b.noteHere("%s: run %d of m%d has nowhere to publish to: %v", p.name, e.nth, e.message, err)
		}
		return
	}
}

// endBatch enters that a run ends now, with all that is in its batch. It needs b.mu.
func (b *book) endBatch(e *entry) {
	b.endHere(e)
	for _, other := range b.entries {
		if e.batch != nil && other != e && other.batch == e.batch {
			b.endHere(other)
		}
	}
}

// voidBehind enters that what stands behind a run in its batch does not count, where that is consecutive messages of a lane. It
// needs b.mu.
func (b *book) voidBehind(e *entry) {
	if e.batch == nil || e.lane == "" || !e.process.run.schedule.Settings.ByKey {
		return
	}
	behind := false
	for _, other := range b.entries {
		if behind && other.batch == e.batch {
			if other.outcome == ledger.Done {
				b.done[other.message]--
			}
			other.void, other.zombie, other.outcome = true, true, ledger.Cancelled
		}
		behind = behind || other == e
	}
}

// judgeBridged looks at outputs that were published before the acks, at least once: those of a run are there only where it
// returned nil, and of each message that is handled all are there, be it of several runs: the broker drops what has a name that
// it has.
func (r *run) judgeBridged() {
	there, any := map[output]bool{}, map[output]bool{}
	for i := range r.outputs {
		o, _ := outputOf(r.outputs[i].Value)
		there[o], any[output{o.message, 0, o.index}] = true, true
	}
	skipped := map[int]bool{}
	for _, e := range r.book.entries {
		skipped[e.message] = skipped[e.message] || e.outcome == ledger.Done && e.act == Skip
		for i := range r.schedule.makes(e.message) {
			if o := (output{e.message, e.nth, i}); there[o] && !e.fine {
				r.book.find("output %v is there, of a run that %s has %v, and told to be %q", o, e.process.name, e.outcome, e.act)
			}
		}
	}
	for n, s := range r.book.stored {
		for i := range r.schedule.makes(n) {
			if !any[output{n, 0, i}] && !skipped[n] && r.inLetters[n] == 0 && s.goneAt.IsZero() && !r.isMistaken(n) {
				r.book.find("m%d is settled, and its output %d is not there", n, i)
			}
		}
	}
}
