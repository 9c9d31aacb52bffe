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

// A world is one case under way: the system, its members, and the books.
type world struct {
	testing.TB
	h   *Harness
	c   *testCase
	sys *System
	// lease in force for this case.
	lease time.Duration

	books ledger.Ledger

	mu      sync.Mutex
	next    int
	members []*member
	acked   map[string]promised // an ack said nil
	again   map[string]promised // and then it was handed out again
	names   map[string]string   // Message.ID by our id
	stories map[string][]string // what became of each message, for those of which a case complains
	weather []string            // what the case did to everybody
	began   time.Time
	// forgets: the case makes the broker forget settles, so its committed offsets do go back.
	forgets  bool
	finished bool
	isDown   bool
	isSlow   bool
}

func newWorld(t testing.TB, h *Harness, c *testCase) *world {
	w := &world{TB: t, h: h, c: c, lease: h.Lease, acked: make(map[string]promised), again: make(map[string]promised),
		names: make(map[string]string), stories: make(map[string][]string), began: time.Now()}
	s := c.setup
	s.Topics, s.Partitions = max(1, s.Topics), max(1, s.Partitions)
	if s.Lease != 0 {
		w.lease = s.Lease
	}
	w.sys = h.New(t, s)
	if w.sys == nil || w.sys.Join == nil || w.sys.Produce == nil || w.sys.Unsettled == nil {
		t.Fatal("brokertest harness: New has to return a System with Join, Produce and Unsettled")
	}
	w.sys = w.note(w.sys)
	if len(w.sys.Topics) < s.Topics {
		t.Fatalf("brokertest harness: New made %d topics, want %d", len(w.sys.Topics), s.Topics)
	}
	return w
}

// tell adds to the stories of messages.
func (w *world) tell(ms []*broker.Message, format string, args ...any) {
	line := fmt.Sprintf("%v ", time.Since(w.began).Round(100*time.Microsecond)) + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range ms {
		w.stories[id(m)] = append(w.stories[id(m)], line)
	}
}

// named checks that a message without an offset has an ID, where it may come again, and the same one each time.
func (w *world) named(m *member, id string, msg *broker.Message) {
	if msg.Offset == -1 && msg.ID == "" && !w.h.Traits.AtMostOnce {
		w.Errorf("%s: message %s has neither Offset nor ID", m.name, id)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if was, known := w.names[id]; known && was != msg.ID {
		w.Errorf("%s: message %s says ID %q, and said %q before", m.name, id, msg.ID, was)
	}
	w.names[id] = msg.ID
}

// story is what became of the first few messages, and what was done meanwhile.
func (w *world) story(ids []string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, id := range ids[:min(len(ids), 3)] {
		fmt.Fprintf(&b, "\n%s: %s", id, strings.Join(w.stories[id], "; "))
	}
	if len(w.weather) > 0 {
		fmt.Fprintf(&b, "\nthe case: %s", strings.Join(w.weather, "; "))
	}
	return b.String()
}

// seen is what each member was told and what it has out, for a case that waited in vain.
func (w *world) seen() string {
	w.mu.Lock()
	ms, weather := slices.Clone(w.members), strings.Join(w.weather, "; ")
	w.mu.Unlock()
	var b strings.Builder
	for _, m := range ms {
		b.WriteString("\n" + m.seenHere())
	}
	if weather != "" {
		b.WriteString("\nthe case: " + weather)
	}
	return b.String()
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

// produce stores n new messages in the partition of the first topic and returns their ids, which are also their values.
func (w *world) produce(partition, n int) []string {
	w.Helper()
	return w.produceTo(w.sys.Topics[0], partition, n)
}

func (w *world) produceTo(topic string, partition, n int) []string {
	w.Helper()
	ids := make([]string, n)
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		ids[i] = w.newID()
		ms[i] = broker.Outgoing{Topic: topic, Value: []byte(ids[i])}
	}
	w.sys.Produce(w, partition, ms...)
	return ids
}

// newID enters a message into the books. Its value has to begin with the id; a dot ends it.
func (w *world) newID() string {
	w.mu.Lock()
	w.next++
	id := fmt.Sprintf("m%05d", w.next)
	w.mu.Unlock()
	w.books.Produced(id)
	return id
}

// eventually waits until a condition holds, and fails the case when it does not.
func (w *world) eventually(what string, cond func() bool) {
	w.Helper()
	for end := time.Now().Add(w.h.Patience); !cond(); time.Sleep(poll) {
		if time.Now().After(end) {
			w.Fatalf("%s: not within %v; books: %v%s", what, w.h.Patience, w.books.Report(), w.seen())
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
	for end := time.Now().Add(w.h.Patience); ; time.Sleep(poll) {
		if got = w.sys.Unsettled(w); got == want {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("the broker has %d unsettled messages, want %d, after %v; books: %v%s", got, want, w.h.Patience, w.books.Report(),
				w.seen())
		}
	}
}

// handled fails unless every message was acked, and each handed out once.
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
	w.promises()
	w.noOutputTwice()
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
	w.up()
	w.slow(0)
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

func (w *world) down() {
	w.isDown = true
	w.sys.Down(w)
}

func (w *world) up() {
	if w.isDown {
		w.isDown = false
		w.sys.Up(w)
	}
}

// slow makes exchanges take longer where the harness can, so that what races gets time to.
func (w *world) slow(d time.Duration) {
	if w.sys.SlowSettles != nil && (d > 0 || w.isSlow) {
		w.isSlow = d > 0
		w.sys.SlowSettles(w, d)
	}
}
