package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

	budget  broker.Budget
	chunk   int
	ordered bool
	observe func(broker.Event)
	measure func(broker.Operation) // Options.Operated
	traits  broker.Traits

	stopped chan struct{} // the receiving goroutine has ended
	more    chan struct{}

	mu       sync.Mutex
	got      []*broker.Message // handed out and not taken by the case
	all      []*broker.Message // every one that was handed out, for cases that settle them all
	heldMsgs map[string]bool   // ids that are out here
	bytes    int64
	total    int // handed out ever
	err      error
	closed   bool
	gone     bool // killed or frozen: it cannot keep its promises
	hangs    bool
	claims   map[*broker.Claim]*claimBook
	events   []stamped
}

type stamped struct {
	broker.Event
	at time.Time
}

type claimBook struct {
	assigned, ended bool
	told            bool             // Observe has returned from Assigned
	high            map[string]int64 // by partition: the highest offset that was handed out for the first time
	handed          int              // messages, repeated ones too
}

// An option changes a member before it opens.
type option func(m *member)

func budget(messages int, bytes int64) option {
	return func(m *member) { m.budget = broker.Budget{Messages: messages, Bytes: bytes} }
}

func chunk(n int) option { return func(m *member) { m.chunk = n } }

func observing(f func(broker.Event)) option { return func(m *member) { m.observe = f } }

func measuring(f func(broker.Operation)) option { return func(m *member) { m.measure = f } }

// callBack calls what Options.Observe and Operated may call.
func (m *member) callBack() {
	if s, ok := m.src.(broker.LagReporter); ok {
		s.Lag()
	}
	if s, ok := m.src.(broker.Rebudgeter); ok {
		s.SetBudget(m.budget)
	}
	if s, ok := m.src.(broker.Pauser); ok {
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
	w.mu.Lock()
	name := fmt.Sprintf("member %d", len(w.members)+1)
	m := &member{
		w: w, p: w.noteProcess(name, p), src: p.Source, name: name,
		budget: broker.Budget{Messages: 256, Bytes: 64 << 20}, chunk: 8, ordered: w.h.Ordered,
		more: make(chan struct{}, 1), heldMsgs: make(map[string]bool), claims: make(map[*broker.Claim]*claimBook),
	}
	w.members = append(w.members, m)
	w.mu.Unlock()
	for _, o := range opts {
		o(m)
	}
	return m
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
		m.w.Errorf("%s: Open returned %+v, want Harness.Traits %+v", m.name, m.traits, want)
	}
}

func (m *member) tryOpen(ctx context.Context) (err error) {
	m.traits, err = m.src.Open(ctx, broker.Options{Budget: m.budget, Ordered: m.ordered, Observe: m.saw, Operated: m.measure})
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

// receiveOnce calls Receive and checks what it returns.
func (m *member) receiveOnce() bool {
	before := m.turned()
	dst := make([]broker.Message, m.chunk)
	n, err := m.src.Receive(dst)
	if err != nil {
		if n != 0 {
			m.w.Errorf("%s: Receive returned %d messages with the error %v", m.name, n, err)
		}
		m.mu.Lock()
		m.err = err
		m.mu.Unlock()
		m.wake()
		return false
	}
	if n < 1 || n > len(dst) {
		m.w.Errorf("%s: Receive returned n = %d for room of %d", m.name, n, len(dst))
		return false
	}
	if c := dst[0].Claim; before[c] {
		m.w.Errorf("%s: Receive handed out a message of a claim that was revoking before it was called", m.name)
	}
	m.enter(dst[:n])
	return true
}

// turned are the claims that are not open any more.
func (m *member) turned() map[*broker.Claim]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	cs := make(map[*broker.Claim]bool)
	for c := range m.claims {
		if !c.Startable() {
			cs[c] = true
		}
	}
	return cs
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
	return int64(len(m.Key) + len(m.Value) + len(m.Headers.Raw))
}

// enter checks and books a chunk.
func (m *member) enter(ms []broker.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := ms[0].Claim
	book := m.claims[c]
	switch {
	case c == nil || book == nil || !book.assigned:
		m.w.Errorf("%s: a message was handed out before its claim's Assigned event", m.name)
		book = m.book(c)
	case !book.told:
		m.w.Errorf("%s: a message was handed out before Observe had returned from its claim's Assigned event", m.name)
	}
	for i := range ms {
		m.enterOne(&ms[i], c, book)
	}
	if len(m.heldMsgs) > m.budget.Messages {
		m.w.Errorf("%s: %d messages are out, the budget is %d", m.name, len(m.heldMsgs), m.budget.Messages)
	}
	m.wake()
}

func (m *member) enterOne(msg *broker.Message, c *broker.Claim, book *claimBook) {
	name := id(msg)
	switch {
	case msg.Claim != c:
		m.w.Errorf("%s: Receive returned messages of several claims", m.name)
	case c != nil && c.Topic != "" && c.Topic != msg.Topic:
		m.w.Errorf("%s: message of topic %q under a claim of %q", m.name, msg.Topic, c.Topic)
	case c != nil && c.Partition >= 0 && c.Partition != msg.Partition:
		m.w.Errorf("%s: message of partition %d under a claim of %d", m.name, msg.Partition, c.Partition)
	case m.w.h.NoPartitions && msg.Partition != -1:
		m.w.Errorf("%s: message %s says partition %d, want -1: Harness.NoPartitions", m.name, name, msg.Partition)
	case msg.Attempt < 1 || msg.Runs < 0:
		m.w.Errorf("%s: message %s has Attempt %d, Runs %d", m.name, name, msg.Attempt, msg.Runs)
	}
	m.w.named(m, name, msg)
	if m.heldMsgs[name] {
		m.w.Errorf("%s: message %s was handed out again while it is out here", m.name, name)
	}
	m.heldMsgs[name] = true
	m.bytes += size(msg)
	m.total++
	book.handed++
	before, _ := m.w.books.Begin(name)
	if at := fmt.Sprintf("%s/%d", msg.Topic, msg.Partition); before == 0 && m.traits.Ordered {
		if high, ok := book.high[at]; ok && msg.Offset <= high {
			m.w.Errorf("%s: offset %d of %s came after %d", m.name, msg.Offset, at, high)
		}
		book.high[at] = msg.Offset
	}
	m.w.tell([]*broker.Message{msg}, "%s got it, attempt %d", m.name, msg.Attempt)
	m.w.cameAgain(name)
	m.got = append(m.got, msg)
	m.all = append(m.all, msg)
}

func (m *member) book(c *broker.Claim) *claimBook {
	b := m.claims[c]
	if b == nil {
		b = &claimBook{high: make(map[string]int64)}
		m.claims[c] = b
	}
	return b
}

func (m *member) wake() {
	select {
	case m.more <- struct{}{}:
	default:
	}
}

// saw is Options.Observe.
func (m *member) saw(e broker.Event) {
	now := time.Now()
	m.mu.Lock()
	m.events = append(m.events, stamped{e, now})
	m.check(e, now)
	m.mu.Unlock()
	if m.observe != nil {
		m.observe(e)
	}
	if e.Kind == broker.Assigned {
		m.mu.Lock()
		m.book(e.Claim).told = true
		m.mu.Unlock()
	}
	m.wake()
}

// check holds an event against those before it.
func (m *member) check(e broker.Event, now time.Time) {
	switch e.Kind {
	case broker.Ended, broker.Down, broker.Unconfirmed, broker.Warning, broker.Notice:
		if e.Err == nil {
			m.w.Errorf("%s: event %v has no Err", m.name, e.Kind)
		}
	}
	switch e.Kind {
	case broker.Assigned:
		b := m.book(e.Claim)
		if b.assigned {
			m.w.Errorf("%s: a claim was Assigned twice", m.name)
		}
		b.assigned = true
	case broker.Ended:
		b := m.book(e.Claim)
		if !b.assigned {
			m.w.Errorf("%s: Ended of a claim that was not Assigned before", m.name)
		}
		if b.ended {
			m.w.Errorf("%s: a claim Ended twice", m.name)
		}
		b.ended = true
		select {
		case <-e.Claim.Ended():
			if err := e.Claim.Cause(); !errors.Is(err, broker.ErrLost) && !errors.Is(err, broker.ErrClosed) {
				m.w.Errorf("%s: a claim ended with the cause %v, which wraps neither ErrLost nor ErrClosed", m.name, err)
			}
		default:
			m.w.Errorf("%s: the Ended event came before Keeper.End", m.name)
		}
	case broker.Down:
		m.checkDown(now)
	}
}

// checkDown holds a Down against the one before it, and against the pause that was between the two before it. A tenth is for
// clocks and scheduling.
func (m *member) checkDown(now time.Time) {
	last, pause := time.Time{}, time.Duration(0) // of this outage
	for _, x := range m.events[:len(m.events)-1] {
		switch x.Kind {
		case broker.Up:
			pause = 0
		case broker.Down:
			if last.IsZero() || pause == 0 {
				pause = 1
			} else {
				pause = x.at.Sub(last)
			}
			last = x.at
		}
	}
	least := time.Second // behind another outage
	switch {
	case last.IsZero():
		return
	case pause == 1:
		least = 2 * time.Second
	case pause > 0:
		least = min(2*pause, time.Minute)
	}
	if got := now.Sub(last); got < least*9/10 {
		m.w.Errorf("%s: a Down event %v after the last one, and %v should be between them", m.name, got, least)
	}
}

// lastEvents is how many events of a member a failure shows.
const lastEvents = 12

// seenHere is what the member was told and what it has out.
func (m *member) seenHere() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d messages were handed out, %d are out", m.name, m.total, len(m.heldMsgs))
	if m.err != nil {
		fmt.Fprintf(&b, ", Receive said %v", m.err)
	}
	skipped := max(0, len(m.events)-lastEvents)
	fmt.Fprintf(&b, "; events: %d", len(m.events))
	if skipped > 0 {
		fmt.Fprintf(&b, ", the last %d", lastEvents)
	}
	for _, e := range m.events[skipped:] {
		fmt.Fprintf(&b, "\n  %v %v", e.at.Sub(m.w.began).Round(100*time.Microsecond), e.Kind)
		if e.Claim != nil && e.Claim.Partition >= 0 {
			fmt.Fprintf(&b, " of %s/%d", e.Claim.Topic, e.Claim.Partition)
		}
		if e.Kind == broker.Gap || e.Kind == broker.Unconfirmed {
			fmt.Fprintf(&b, ", from %d, n %d", e.From, e.N)
		}
		if e.Err != nil {
			fmt.Fprintf(&b, ": %v", e.Err)
		}
	}
	return b.String()
}

// seen counts the events of a kind so far.
func (m *member) seen(k broker.Kind) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, e := range m.events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// gaps sums up the Gap events. unknown: at least one did not know its N.
func (m *member) gaps() (events int, n int64, unknown bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		if e.Kind == broker.Gap {
			events++
			unknown = unknown || e.N < 0
			n += max(0, e.N)
		}
	}
	return events, n, unknown
}

// take waits for n messages and takes them. why says, where it is not plain, what they are and why they have to come.
func (m *member) take(n int, why ...string) []*broker.Message {
	m.w.Helper()
	ms, err := m.tryTake(n, m.w.h.Patience)
	if len(ms) < n {
		m.w.Fatalf("%s: %d messages came, want %s; Receive: %v; books: %v%s", m.name, len(ms),
			strings.Join(append([]string{fmt.Sprint(n)}, why...), " "),
			err, m.w.books.Report(), m.w.seen())
	}
	return ms
}

// tryTake takes up to n messages, as many as come within d.
func (m *member) tryTake(n int, d time.Duration) ([]*broker.Message, error) {
	end := time.NewTimer(d)
	defer end.Stop()
	for {
		m.mu.Lock()
		if len(m.got) >= n || m.err != nil {
			ms, err := m.cut(n), m.err
			m.mu.Unlock()
			return ms, err
		}
		m.mu.Unlock()
		select {
		case <-m.more:
		case <-end.C:
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.cut(n), m.err
		}
	}
}

func (m *member) cut(n int) []*broker.Message {
	n = min(n, len(m.got))
	ms := m.got[:n:n]
	m.got = m.got[n:]
	return ms
}

// quiet fails when something is handed out that the case did not take, within d. It proves something only while the member
// receives: where Receive has ended, or was not called, nothing can come, whatever the adapter would do.
func (m *member) quiet(d time.Duration, why string) {
	m.w.Helper()
	ms, err := m.tryTake(1, d)
	switch {
	case len(ms) > 0:
		m.w.Errorf("%s: message %s was handed out, but %s", m.name, id(ms[0]), why)
	case m.stopped == nil:
		m.w.Errorf("%s: nobody calls Receive, so that nothing came proves nothing: %s", m.name, why)
	case err != nil:
		m.w.Errorf("%s: Receive ended, with %v, while this was to be seen: nothing comes, for %s", m.name, err, why)
	}
}

// out is how many messages are out here.
func (m *member) out() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.heldMsgs)
}

func (m *member) handedOut() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total
}
