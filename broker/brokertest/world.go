package brokertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest/ledger"
)

// A world is one case under way: the system, its members, and what is known of them. Each part keeps its own.
type world struct {
	testing.TB
	*producer
	h   *Harness
	sys *System
	// lease in force for this case.
	lease time.Duration

	books    ledger.Ledger
	stories  *stories
	faults   *faults
	promises *promises
	names    *names

	mu       sync.Mutex
	members  []*member
	finished bool
	// forgets: the case makes the broker forget settles, so its committed offsets do go back.
	forgets bool
}

func newWorld(t testing.TB, h *Harness, c *testCase) *world {
	began := time.Now()
	w := &world{
		TB: t, h: h, lease: h.Lease,
		stories:  &stories{began: began, of: make(map[string][]string)},
		faults:   &faults{began: began},
		promises: &promises{crossing: h.Lease / 20, acked: make(map[string]promise), again: make(map[string]promise)},
		names:    &names{of: make(map[string]string)},
	}
	s := c.setup
	s.Topics, s.Partitions = max(1, s.Topics), max(1, s.Partitions)
	if s.Lease != 0 {
		w.lease = s.Lease
	}
	w.sys = h.New(t, s)
	if w.sys == nil || w.sys.Join == nil || w.sys.Produce == nil || w.sys.Unsettled == nil {
		t.Fatal("brokertest harness: New has to return a System with Join, Produce and Unsettled")
	}
	w.sys = w.faults.system(w.sys)
	w.producer = &producer{t: t, sys: w.sys, books: &w.books}
	if len(w.sys.Topics) < s.Topics {
		t.Fatalf("brokertest harness: New made %d topics, want %d", len(w.sys.Topics), s.Topics)
	}
	return w
}

// named checks that a message without an offset has an ID, where it may come again, and the same one each time.
func (w *world) named(m *member, id string, msg *broker.Message) {
	if msg.Offset == -1 && msg.ID() == "" && !w.h.Traits.AtMostOnce {
		m.fail("message %s has neither Offset nor ID", id)
	}
	if was, differs := w.names.note(id, msg.ID()); differs {
		m.fail("message %s says ID %q, and said %q before", id, msg.ID(), was)
	}
	if was, differs := w.names.timed(id, msg.Nanos); differs {
		m.fail("message %s says Nanos %d, and said %d before: it is the time of the message, not of a delivery", id, msg.Nanos, was)
	}
}

// story is what became of the first few messages, and what was done meanwhile.
func (w *world) story(ids []string) string { return w.stories.text(ids) + w.faults.text() }

// seen is what each member was told and what it has out, for a case that waited in vain.
func (w *world) seen() string {
	w.mu.Lock()
	ms := slices.Clone(w.members)
	w.mu.Unlock()
	var b strings.Builder
	for _, m := range ms {
		fmt.Fprintf(&b, "\n%s: %s; %s", m.name, m.hand.text(), m.told.text())
	}
	return b.String() + w.faults.text()
}

// need skips the case when an ability is missing; the harness has to say why it is.
func (w *world) need(name string, there bool) {
	w.Helper()
	if there {
		return
	}
	reason := w.h.Cannot[name]
	if reason == "" {
		w.Fatalf("brokertest harness: %s is nil, and Harness.Cannot[%q] does not say why", name, name)
	}
	w.h.skip(w, name+": "+reason)
}

// eventually waits until a condition holds, and fails the case when it does not.
func (w *world) eventually(what string, cond func() bool) {
	w.Helper()
	patience := w.h.patience()
	for end := time.Now().Add(patience); !cond(); time.Sleep(poll) {
		if time.Now().After(end) {
			w.Fatalf("%s: not within %v; books: %v%s", what, patience, w.books.Report(), w.seen())
		}
	}
}

// settled waits until the broker has all down as settled.
func (w *world) settled() {
	w.Helper()
	w.unsettled(0)
}

func (w *world) unsettled(want int64) {
	w.Helper()
	var got int64
	patience := w.h.patience()
	for end := time.Now().Add(patience); ; time.Sleep(poll) {
		if got = w.sys.Unsettled(w); got == want {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("the broker has %d unsettled messages, want %d, after %v; books: %v%s", got, want, patience, w.books.Report(),
				w.seen())
		}
	}
}

// handledOnce fails unless every message was acked, and each handed out once.
func (w *world) handledOnce() {
	w.Helper()
	r := w.books.Report()
	if len(r.Lost) > 0 || r.Repeats > 0 || len(r.Unknown) > 0 {
		w.Errorf("want each message handled once: %v", r)
	}
}

// handled fails unless every message was acked.
func (w *world) handled() {
	w.Helper()
	if r := w.books.Report(); len(r.Lost) > 0 || len(r.Unknown) > 0 {
		w.Errorf("want each message handled: %v", r)
	}
}

// finish closes what is open and checks what holds in every case.
func (w *world) finish() {
	w.Helper()
	w.closeAll()
	for _, m := range w.members {
		m.keepsPromises()
	}
	noOutputTwice(w)
	if w.sys.Floors == nil || w.forgets {
		return
	}
	for partition, floors := range w.sys.Floors(w) {
		for i := 1; i < len(floors); i++ {
			if floors[i] < floors[i-1] {
				w.Errorf("the committed offset of %s went backwards: %v", partition, floors)
				break
			}
		}
	}
}

// closeAll closes every member that is not, after mending what the case broke.
func (w *world) closeAll() {
	w.mu.Lock()
	ms := append([]*member(nil), w.members...)
	done := w.finished
	w.finished = true
	w.mu.Unlock()
	if done {
		return
	}
	w.faults.mend(w, w.sys)
	for _, m := range ms {
		m.mend()
	}
	for _, m := range ms {
		m.end()
	}
}

// moment is how long a case waits for what would happen at once if it did.
func (w *world) moment() time.Duration { return w.h.Lease / 4 }

// within is a context that ends after d.
func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// slow makes exchanges take longer where the harness can, so that what races gets time to.
func (w *world) slow(d time.Duration) {
	if w.sys.SlowSettles != nil {
		w.sys.SlowSettles(w, d)
	}
}
