package brokertest

import "github.com/longshoremq/longshore/broker"

// orderAfter proves that with Traits.Ordered the order holds over two processes: when one that has messages out leaves, the other
// is handed none before each that stands before it was settled, or is out there as well. What comes again may come twice, but not
// after later ones.
func orderAfter(leave func(m *member)) func(w *world) {
	return func(w *world) {
		first, second, partition := w.replicas()
		ids := w.produce(partition, 30)
		w.eventually("one of two processes has 20 messages out", func() bool { return first.out() == 20 || second.out() == 20 })
		if second.out() == 20 {
			first, second = second, first
		}
		held := first.take(20)
		first.mustAck(held[:5]...)
		ids = append(ids, w.produce(partition, 10)...)
		seq := sequence{ids: ids, passed: make(map[string]bool)}
		for _, msg := range held[:5] {
			seq.passed[id(msg)] = true
		}
		leave(first)
		defer second.handle(func(msg *broker.Message) {
			if missed := seq.next(id(msg)); missed != "" {
				w.Errorf("message %s was handed out, and %s, which stands before it, is neither settled nor out there", id(msg), missed)
			}
			second.mustAck(msg)
		})()
		w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
		w.settled()
		w.handled()
	}
}

// A sequence is of messages that have to come in their order. It is not safe for concurrent use.
type sequence struct {
	ids    []string
	passed map[string]bool // settled, or handed out
}

// next takes note of a message that was handed out. missed stands before it, and was neither settled nor handed out; empty: none.
func (s *sequence) next(handed string) (missed string) {
	s.passed[handed] = true
	for _, id := range s.ids {
		switch {
		case id == handed:
			return ""
		case !s.passed[id]:
			return id
		}
	}
	return ""
}

// replicas makes two processes that keep an order over both, and names a partition that one of them has, if there are any.
func (w *world) replicas() (a, b *member, partition int) {
	w.Helper()
	options := []option{budget(20, 1<<20), ordered()}
	if w.h.NoPartitions {
		a, b = w.join(options...), w.join(options...)
	} else {
		a, b = w.pair(options...)
		partition = int(a.current().Partition)
	}
	if !a.traits.Ordered {
		w.h.skip(w, "Traits.Ordered is not set: processes share what comes")
	}
	return a, b, partition
}

func orderAfterKill(w *world) {
	w.need("Kill", w.process().p.Kill != nil)
	orderAfter((*member).kill)(w)
}

func orderAfterFreeze(w *world) {
	p := w.process().p
	w.need("Freeze", p.Freeze != nil)
	w.need("Thaw", p.Thaw != nil)
	orderAfter((*member).freeze)(w)
}
