package brokertest

import (
	"math/rand/v2"

	"github.com/longshoremq/longshore/broker"
)

// handedOutOnce proves the plain way: each message is handed out once, acks are nil, and the broker has all down as settled.
func handedOutOnce(w *world) {
	m := w.join()
	w.produce(0, 300)
	for range 30 {
		m.mustAck(m.take(10)...)
	}
	w.settled()
	m.quiet(w.lease, "all was acked")
	w.handledOnce()
}

// sharedByGroup proves that two processes of a group share its messages: each is handed out to one of them.
func sharedByGroup(w *world) {
	a, b := w.join(), w.join()
	w.eventually("both processes have a claim", func() bool {
		return a.told.times(broker.Assigned) > 0 && b.told.times(broker.Assigned) > 0
	})
	for p := range 4 {
		w.produce(p, 50)
	}
	for _, m := range []*member{a, b} {
		defer m.handle(func(msg *broker.Message) { m.mustAck(msg) })()
	}
	w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
	w.settled()
	w.handledOnce()
}

// atLeastOnce proves that no message is lost when handlers fail now and then and processes come and go. Processes leave in good
// order here, so nothing that was acked comes again.
func atLeastOnce(w *world) {
	rnd := rand.New(rand.NewPCG(1, 2))
	fail := make([]bool, 4000)
	for i := range fail {
		fail[i] = rnd.IntN(5) == 0
	}
	start := func() (*member, func()) {
		m := w.join(budget(20, 1<<20))
		i := 0
		return m, m.handle(func(msg *broker.Message) {
			if i++; fail[i%len(fail)] {
				_ = m.nack(0, msg.Runs+1, msg)
				return
			}
			_ = m.ack(msg)
		})
	}
	_, stopA := start()
	defer stopA()
	for range 3 {
		b, stopB := start()
		for p := range 4 {
			w.produce(p, 40)
		}
		w.eventually("half of it was handled", func() bool {
			return w.books.Open() < 80
		})
		stopB()
		b.close()
	}
	w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
	w.settled()
	w.handled()
}

// order proves that the messages of a partition are handed out in the broker's order, where it keeps one. With Traits.Ordered the
// suite checks the offsets of first deliveries in every case; here it is the ids, while nothing is given back, and of brokers
// that share a partition, too.
func order(w *world) {
	m := w.join(chunk(7))
	var want []string
	for range 10 {
		want = append(want, w.produce(0, 11)...)
	}
	for i, msg := range m.take(len(want)) {
		if got := id(msg); got != want[i] {
			w.Fatalf("message %d is %s, want %s", i, got, want[i])
		}
		m.mustAck(msg)
	}
	w.settled()
}

// needsPartitions is the reason against a case about claims that go from process to process.
func needsPartitions(h *Harness) string {
	if h.NoPartitions {
		return "Harness.NoPartitions: every process has a claim of its own"
	}
	return ""
}

// needsHandover is the reason against a case in which a partition goes to another process, and what is not settled with it.
func needsHandover(h *Harness) string {
	if why := needsPartitions(h); why != "" {
		return why
	}
	return needsRedelivery(h)
}

func needsOrder(h *Harness) string {
	if h.Unordered {
		return "Harness.Unordered: the broker keeps no order"
	}
	return ""
}

// severalTopics proves that a source reads all its topics, and that each message says which one it is of.
func severalTopics(w *world) {
	m := w.join()
	topic := make(map[string]string)
	for _, name := range w.sys.Topics[:2] {
		for p := range 2 {
			for _, id := range w.produceTo(name, p, 10) {
				topic[id] = name
			}
		}
	}
	for _, msg := range m.take(len(topic)) {
		if want := topic[id(msg)]; msg.Topic != want {
			w.Errorf("message %s says topic %q, want %q", id(msg), msg.Topic, want)
		}
		m.mustAck(msg)
	}
	w.settled()
	w.handledOnce()
}
