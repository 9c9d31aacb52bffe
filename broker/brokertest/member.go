package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A member is one process with its source, and a goroutine that receives from it. It checks, at each call and in each case, what
// the contract promises always.
type member struct {
	w    *world
	name string
	p    *Process
	src  broker.Source

	chunk   int
	ordered bool
	observe func(broker.Event)
	measure func(broker.Operation) // Options.Operated
	await   func(context.Context) error
	traits  broker.Traits

	acks   *acker
	hand   *hand
	told   *told
	claims *claimBook
	fate   fate

	stopped chan struct{} // the receiving goroutine has ended
}

// An option changes a member before it opens.
type option func(m *member)

func budget(messages int, bytes int64) option {
	return func(m *member) { m.hand.setBudget(broker.Budget{Messages: messages, Bytes: bytes}) }
}

func chunk(n int) option { return func(m *member) { m.chunk = n } }

func observing(f func(broker.Event)) option { return func(m *member) { m.observe = f } }

func measuring(f func(broker.Operation)) option { return func(m *member) { m.measure = f } }

func awaiting(f func(context.Context) error) option { return func(m *member) { m.await = f } }

// callBack calls what Options.Observe and Operated may call.
func callBack(src broker.Source, b broker.Budget) {
	if s, ok := src.(broker.LagReporter); ok {
		s.Lag()
	}
	if s, ok := src.(broker.Rebudgeter); ok {
		s.SetBudget(b)
	}
	if s, ok := src.(broker.Pauser); ok {
		_ = s.Pause()
		_ = s.Resume()
	}
}

// process makes a member that is not opened.
func (w *world) process(opts ...option) *member {
	w.Helper()
	return w.adopt(w.sys.Join(w), opts...)
}

// adopt makes a member of a process.
func (w *world) adopt(p *Process, opts ...option) *member {
	w.Helper()
	if p == nil || p.Source == nil {
		w.Fatal("brokertest harness: Join has to return a Process with a Source")
	}
	if _, emits := p.Source.(broker.Emitter); w.h.Traits.Atomic && !emits {
		w.Fatal("brokertest harness: Traits.Atomic is set, and the source is no broker.Emitter")
	}
	w.mu.Lock()
	name := fmt.Sprintf("member %d", len(w.members)+1)
	m := &member{w: w, p: w.faults.process(name, p), src: p.Source, name: name, chunk: 8, ordered: w.h.Ordered}
	m.acks = &acker{src: p.Source, name: name, atomic: w.h.Traits.Atomic, topic: w.sys.Outputs}
	m.hand = newHand(m.fail, broker.Budget{Messages: 256, Bytes: 64 << 20})
	m.told = &told{fail: m.fail, began: w.faults.began}
	m.claims = &claimBook{fail: m.fail, of: make(map[*broker.Claim]*claimRecord)}
	w.members = append(w.members, m)
	w.mu.Unlock()
	for _, o := range opts {
		o(m)
	}
	return m
}

// fail fails the case in the member's name.
func (m *member) fail(format string, args ...any) {
	m.w.Helper()
	m.w.Errorf("%s: %s", m.name, fmt.Sprintf(format, args...))
}

// join makes a member, opens it and starts receiving.
func (w *world) join(opts ...option) *member {
	w.Helper()
	m := w.process(opts...)
	m.open()
	m.receive()
	return m
}

func (m *member) open() {
	m.w.Helper()
	ctx, cancel := within(m.w.h.Patience)
	defer cancel()
	if err := m.tryOpen(ctx); err != nil {
		m.w.Fatalf("%s: Open: %v", m.name, err)
	}
	want := m.w.h.Traits
	want.Ordered = want.Ordered || m.ordered && m.w.h.OrdersOnDemand
	if m.traits != want {
		m.fail("Open returned %+v, want Harness.Traits %+v", m.traits, want)
	}
}

func (m *member) tryOpen(ctx context.Context) (err error) {
	m.traits, err = m.src.Open(ctx, broker.Options{
		Budget: m.hand.atMost(), Ordered: m.ordered, Await: m.await, Observe: m.saw, Operated: m.measure,
	})
	return err
}

// receive starts the goroutine that receives.
func (m *member) receive() {
	m.stopped = make(chan struct{})
	go func() {
		defer close(m.stopped)
		for m.receiveOnce() {
		}
	}()
}

// leftOver stands in dst before Receive, as what an earlier call left there may.
var leftOver = broker.Message{
	Topic: "left over", Partition: 99, Attempt: 99, Offset: 99, Name: "left over", Nanos: 99, Runs: 99, Crashes: 99, Token: 99,
	Key: []byte("left over"), Value: []byte("left over"), Headers: broker.Headers{Raw: []byte("left over")},
}

// keepsLeftOver says whether something of a message was not set.
func keepsLeftOver(m *broker.Message) bool {
	is := func(b []byte) bool { return string(b) == string(leftOver.Value) }
	return m.Topic == leftOver.Topic || m.Name == leftOver.Name || m.Nanos == leftOver.Nanos || m.Runs == leftOver.Runs ||
		m.Crashes == leftOver.Crashes || is(m.Key) || is(m.Value) || is(m.Headers.Raw)
}

// receiveOnce calls Receive and checks what it returns.
func (m *member) receiveOnce() bool {
	turned := m.claims.list(false)
	dst := slices.Repeat([]broker.Message{leftOver}, m.chunk)
	n, err := m.src.Receive(dst)
	if err != nil {
		if n != 0 {
			m.fail("Receive returned %d messages with the error %v", n, err)
		}
		m.hand.end(err)
		return false
	}
	if n < 1 || n > len(dst) {
		m.fail("Receive returned n = %d for room of %d", n, len(dst))
		return false
	}
	if slices.Contains(turned, dst[0].Claim) {
		m.fail("Receive handed out a message of a claim that was revoking before it was called")
	}
	m.enter(slices.Clone(dst[:n]))
	clear(dst) // it is the caller's, and not kept
	return true
}

// headerID carries the id of a message whose value cannot.
const headerID = "Case-Id"

// id is what a message's value begins with.
func id(m *broker.Message) string {
	if v, ok := m.Headers.Get(headerID); ok {
		return string(v)
	}
	s, _, _ := bytes.Cut(m.Value, []byte("."))
	return string(s)
}

func size(m *broker.Message) int64 {
	return int64(len(m.Key) + len(m.Value) + m.Headers.Bytes())
}

// enter checks and books a chunk.
func (m *member) enter(ms []broker.Message) {
	c := ms[0].Claim
	m.claims.hand(c, len(ms))
	for i := range ms {
		m.check(&ms[i], c)
		m.book(&ms[i], c)
	}
	m.hand.enter(ms) // the case sees them from here on
}

// check holds a message against the claim that it came under.
func (m *member) check(msg *broker.Message, c *broker.Claim) {
	switch {
	case msg.Claim != c:
		m.fail("Receive returned messages of several claims")
	case c != nil && c.Topic != "" && c.Topic != msg.Topic:
		m.fail("message of topic %q under a claim of %q", msg.Topic, c.Topic)
	case c != nil && c.Partition >= 0 && c.Partition != msg.Partition:
		m.fail("message of partition %d under a claim of %d", msg.Partition, c.Partition)
	case m.w.h.NoPartitions && msg.Partition != -1:
		m.fail("message %s says partition %d, want -1: Harness.NoPartitions", id(msg), msg.Partition)
	case keepsLeftOver(msg):
		m.fail("message %s has what stood in dst before Receive: %+v", id(msg), *msg)
	case msg.Attempt < 1 || msg.Runs < 0:
		m.fail("message %s has Attempt %d, Runs %d", id(msg), msg.Attempt, msg.Runs)
	}
	m.w.named(m, id(msg), msg)
}

// book enters a message into what is kept of the whole case.
func (m *member) book(msg *broker.Message, c *broker.Claim) {
	if before, _ := m.w.books.Begin(id(msg)); before == 0 && m.traits.Ordered {
		m.claims.inOrder(c, msg)
	}
	m.w.stories.tell([]*broker.Message{msg}, "%s got it, attempt %d", m.name, msg.Attempt)
	m.w.promises.handedOut(id(msg))
}

// saw is Options.Observe.
func (m *member) saw(e broker.Event) {
	m.told.note(e, time.Now())
	m.claims.note(e)
	if m.observe != nil {
		m.observe(e)
	}
	m.claims.observed(e)
	m.hand.wake()
}

// take waits for n messages and takes them. why says, where it is not plain, what they are and why they have to come.
func (m *member) take(n int, why ...string) []*broker.Message {
	m.w.Helper()
	ms, err := m.hand.take(n, m.w.h.patience())
	if len(ms) < n {
		m.w.Fatalf("%s: %d messages came, want %s; Receive: %v; books: %v%s", m.name, len(ms),
			strings.Join(append([]string{fmt.Sprint(n)}, why...), " "),
			err, m.w.books.Report(), m.w.seen())
	}
	return ms
}

// quiet fails when something is handed out that the case did not take, within d. It proves something only while the member
// receives: where Receive has ended, or was not called, nothing can come, whatever the adapter would do.
func (m *member) quiet(d time.Duration, why string) {
	m.w.Helper()
	ms, err := m.hand.take(1, d)
	switch {
	case len(ms) > 0:
		m.fail("message %s was handed out, but %s", id(ms[0]), why)
	case m.stopped == nil:
		m.fail("nobody calls Receive, so that nothing came proves nothing: %s", why)
	case err != nil:
		m.fail("Receive ended, with %v, while this was to be seen: nothing comes, for %s", err, why)
	}
}

// out is how many messages are out here.
func (m *member) out() int {
	n, _ := m.hand.out()
	return n
}
