package membroker

import (
	"errors"
	"time"
)

// A batch is what is sent of one holding at once.
type batch struct {
	h        *holding
	term     int64
	p        progress // partitioned
	outs     emitted
	acks     []int64 // leased
	backs    []leasedBack
	promised int64
	err      error
}

func (b *batch) fenced() bool { return errors.Is(b.err, errFenced) }

// send runs at the broker.
func (b *batch) send(m *member, now time.Time) {
	f := &m.g.b.faults
	if m.g.b.stream == nil {
		b.err = m.commit(b.h, b.term, b.p, b.outs, f)
		return
	}
	if b.err = m.settle(b, now, f); b.err == nil {
		b.backs = nil // sent: a second time could pull them from who has them then
	}
}

// commit writes a member's progress down, with what was emitted on the way there, if the partition is still its.
func (m *member) commit(h *holding, term int64, p progress, outs emitted, f *faults) error {
	c := h.cur
	if err := f.fail(OpSettle); err != nil {
		return err
	}
	if c.owner != m || c.term != term || c.epoch != p.epoch {
		return errFenced
	}
	if err := m.emit(c, h, outs, f); err != nil {
		return err
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
		due := now
		if back.due.After(now) {
			due = back.due
		}
		c.leases.giveBack(back.offset, now.UnixNano(), due.UnixNano(), back.runs)
	}
	c.remember(c.leases.floor)
	if len(b.backs) > 0 {
		m.g.b.wake()
	}
	return nil
}
