package brokertest

import (
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// An operationBook has what a source told of its requests.
type operationBook struct {
	mu    sync.Mutex
	wrong []broker.Operation
	good  map[broker.OperationKind]int // that did not fail
}

// note takes note of one, and returns how many of its kind there were.
func (b *operationBook) note(o broker.Operation) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.Took < 0 || o.Kind != broker.Fetch && o.Kind != broker.Settle {
		b.wrong = append(b.wrong, o)
	}
	if o.Err == nil {
		b.good[o.Kind]++
	}
	return b.good[o.Kind]
}

// has says whether one of the kind was told that did not fail.
func (b *operationBook) has(kind broker.OperationKind) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.good[kind] > 0
}

// operationsAreTold proves that a request for messages and a settle are told when they are over, and that Options.Operated may
// call the source: it is called with no lock held.
func operationsAreTold(w *world) {
	book := &operationBook{good: map[broker.OperationKind]int{}}
	var m *member
	// A small budget: a request for many messages may stay with the broker until all have come.
	m = w.process(budget(4, 1<<20), measuring(func(o broker.Operation) {
		if book.note(o) <= 3 { // not each time: a Pause lets go of what came just now
			callBack(m.src, m.hand.atMost())
		}
	}))
	over := make(chan struct{})
	go func() {
		defer close(over)
		m.open()
		m.receive()
		w.produce(0, 20)
		for range 5 {
			m.mustAck(m.take(4)...)
		}
		w.settled()
		for _, kind := range broker.OperationKinds() {
			if w.h.Operations {
				w.eventually("a "+kind.String()+" is told to Options.Operated", func() bool { return book.has(kind) })
			}
		}
		m.close()
	}()
	select {
	case <-over:
	case <-time.After(4 * w.h.Patience):
		m.abandon()
		w.Fatalf("the source hangs: Operated is called with a lock held%s", w.h.stacks())
	}
	for _, kind := range broker.OperationKinds() {
		if book.has(kind) && !w.h.Operations {
			w.Errorf("a %v was told to Options.Operated, and Harness.Operations is not set", kind)
		}
	}
	if len(book.wrong) > 0 {
		w.Errorf("Options.Operated was told %+v: a kind that is none, or a negative time", book.wrong)
	}
}
