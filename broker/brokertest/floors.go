package brokertest

import (
	"cmp"
	"slices"

	"github.com/longshoremq/longshore/broker"
)

// floorOf is the member's floor of a log; -1: it tells none.
func floorOf(m *member, log string) int64 {
	for _, f := range m.src.(broker.FloorReporter).Floors() {
		if f.Log == log {
			return f.Offset
		}
	}
	return -1
}

// reportsFloors skips the case where the source tells no floors.
func reportsFloors(w *world, m *member) {
	if _, ok := m.src.(broker.FloorReporter); !ok {
		w.h.skip(w, "the source is no broker.FloorReporter")
	}
}

// floors proves that all messages of a log name it, the same in each process, and that its floor is above all that is finished,
// and never above a message that is not, until the end of the source and beyond it.
func floors(w *world) {
	m := w.process()
	reportsFloors(w, m)
	m.open()
	m.receive()
	w.produce(0, 10)
	ms := m.take(10)
	slices.SortFunc(ms, func(a, b *broker.Message) int { return cmp.Compare(a.Offset, b.Offset) })
	log := ms[0].Log()
	if log == "" {
		w.Fatal("Message.Log is empty, and the source is a broker.FloorReporter")
	}
	for _, msg := range ms {
		if msg.Log() != log {
			w.Errorf("message %s is of the log %q, the first one of %q", id(msg), msg.Log(), log)
		}
	}
	m.mustAck(slices.Concat(ms[:4], ms[5:])...)
	w.eventually("the floor is behind what is finished without a gap", func() bool { return floorOf(m, log) > ms[3].Offset })
	w.produce(0, 10)
	m.mustAck(m.take(10)...)
	w.unsettled(1)
	if at := floorOf(m, log); at > ms[4].Offset {
		w.Errorf("the floor is %d, and the message at %d is out", at, ms[4].Offset)
	}
	m.mustAck(ms[4])
	w.settled()
	w.eventually("the floor is behind all that is finished", func() bool { return floorOf(m, log) > ms[9].Offset })
	m.close()
	if at := floorOf(m, log); at <= ms[9].Offset {
		w.Errorf("after Close the floor is %d, it was above %d before", at, ms[9].Offset)
	}
	b := w.join()
	w.produce(0, 1)
	next := b.take(1)
	if next[0].Log() != log {
		w.Errorf("another process says that the log is %q, the first one said %q", next[0].Log(), log)
	}
	b.mustAck(next...)
	w.settled()
}

// floorsRecreated proves that a log that was made anew has a name of its own, and that the floor of the old one says nothing of
// it.
func floorsRecreated(w *world) {
	w.need("Recreate", w.sys.Recreate != nil)
	m := w.process()
	reportsFloors(w, m)
	m.open()
	m.receive()
	w.produce(0, 10)
	ms := m.take(10)
	m.mustAck(ms...)
	w.settled()
	old, high := ms[0].Log(), ms[9].Offset
	w.eventually("the floor of the old log is behind its messages", func() bool { return floorOf(m, old) > high })
	w.sys.Recreate(w, w.sys.Topics[0])
	w.produce(0, 20)
	for range 20 {
		msg := m.take(1)[0]
		if msg.Log() == old {
			w.Errorf("message %s of the new log, at %d, says that it is of the old one, %q", id(msg), msg.Offset, old)
		}
		m.mustAck(msg)
	}
	w.settled()
	w.produce(0, 1)
	w.eventually("the new log has its name", func() bool {
		msg := m.take(1)[0]
		m.mustAck(msg)
		if msg.Log() != "" {
			return msg.Log() != old
		}
		w.produce(0, 1)
		return false
	})
	w.settled()
}
