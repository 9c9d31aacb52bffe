package membroker

import (
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

var _ broker.Emitter = (*Source)(nil)

// AckEmitting implements broker.Emitter, where Config.Atomic is set.
func (s *Source) AckEmitting(c *broker.Claim, es []broker.Emission) error {
	cs := s.own(c)
	if cs == nil {
		return errForeign
	}
	return s.holdings.ackEmitting(cs, es)
}

// CheckEmit implements broker.Emitter.
func (s *Source) CheckEmit(o *broker.Outgoing) error {
	if err := broker.CheckDestination(o.Topic); err != nil {
		return fmt.Errorf("membroker: %w: %w", err, broker.ErrRefused)
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.b.fits(o)
}

// Carries implements broker.Emitter: every publisher of the broker.
func (s *Source) Carries(p broker.Publisher) bool {
	own, ok := p.(*Publisher)
	return ok && own.b == s.b
}

// fits says what would never be stored. It needs b.mu.
func (b *Broker) fits(m *broker.Outgoing) error {
	if m.Topic == "" {
		return fmt.Errorf("membroker: publishing: the topic is empty: %w", broker.ErrRefused)
	}
	if size := outgoingSize(m); size > int64(b.cfg.MaxMessageBytes) {
		return fmt.Errorf("membroker: publishing to %q: %d bytes, at most %d: %w", m.Topic, size, b.cfg.MaxMessageBytes,
			broker.ErrRefused)
	}
	if _, err := b.topic(m.Topic); err != nil {
		return fmt.Errorf("membroker: publishing: %w", err)
	}
	return nil
}

// Outputs are what was emitted with acks of a holding that no commit has yet, in the order of the acks. They are numbered, so
// that the broker can tell those that it has stored with a commit whose answer got lost: that commit is sent again, with what
// was acked since.
type outputs struct {
	list  []broker.Outgoing
	next  int64 // the number of the one behind the last
	bytes int64
}

// add returns how many bytes more are kept.
func (x *outputs) add(os []broker.Outgoing) (bytes int64) {
	x.list = append(x.list, os...)
	x.next += int64(len(os))
	bytes = sizeOfAll(os)
	x.bytes += bytes
	return bytes
}

// all are those to be sent; what is added later is not in it.
func (x *outputs) all() emitted {
	return emitted{list: x.list[:len(x.list):len(x.list)], first: x.next - int64(len(x.list))}
}

// stored forgets what was sent, and returns how many bytes that were.
func (x *outputs) stored(e emitted) (bytes int64) {
	first := x.next - int64(len(x.list))
	if n := e.first + int64(len(e.list)) - first; n > 0 {
		bytes = sizeOfAll(x.list[:n])
		x.list = x.list[n:]
		x.bytes -= bytes
	}
	return bytes
}

// takeOuts lets go of what is kept, for the commit that is the holding's last, or for nobody.
func (h *holding) takeOuts() emitted {
	e := h.outs.all()
	h.sh.gate.Hold(0, -h.outs.bytes)
	h.outs.list, h.outs.bytes = nil, 0
	return e
}

func sizeOfAll(os []broker.Outgoing) (bytes int64) {
	for i := range os {
		bytes += outgoingSize(&os[i])
	}
	return bytes
}

func outgoingSize(m *broker.Outgoing) int64 {
	size := len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		size += len(h.Key) + len(h.Value)
	}
	return int64(size)
}

// Emitted outputs are on their way to the broker, numbered from first on.
type emitted struct {
	list  []broker.Outgoing
	first int64
}

// An emitLog is what the broker remembers of the holding that emits to it with its commits.
type emitLog struct {
	of     *holding
	stored int64 // all below this number
}

// emit stores those that are not stored yet, all or none. It runs at the broker.
func (m *member) emit(c *cursor, h *holding, e emitted, f *faults) error {
	if c.emits.of != h {
		c.emits = emitLog{of: h}
	}
	fresh := e.list[min(int64(len(e.list)), max(0, c.emits.stored-e.first)):]
	if len(fresh) == 0 {
		return nil
	}
	if err := f.fail(OpPublish); err != nil {
		return err
	}
	b := m.g.b
	for i := range fresh {
		if err := b.fits(&fresh[i]); err != nil {
			return err
		}
	}
	now := time.Now()
	for _, o := range fresh {
		if err := b.store(o, -1, now); err != nil {
			return err // never: it fits
		}
	}
	c.emits.stored = e.first + int64(len(e.list))
	return nil
}

// ackEmitting settles messages as handled, and keeps what was made of them for the commit that has them.
func (hs *holdings) ackEmitting(cs *claimState, es []broker.Emission) error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var t kit.Tally
	for _, e := range es {
		var one kit.Tally
		hs.list.ack(cs, e.Tokens, &one)
		if one.Held > 0 { // else the messages are another's, who emits for them, or were settled before
			hs.shared.gate.Hold(0, cs.h.outs.add(e.Outs))
		}
		t.Held, t.Lost, t.Again = t.Held+one.Held, t.Lost+one.Lost, t.Again+one.Again
	}
	cs.settled(&t)
	return t.Err()
}
