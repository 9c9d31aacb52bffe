package brokertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A hand is what a member was handed out: what the case has not taken yet, what is not settled, and whether there will be more.
type hand struct {
	fail failure
	more chan struct{} // has one element when something may have changed

	mu     sync.Mutex
	budget broker.Budget
	got    []*broker.Message // not taken by the case
	all    []*broker.Message // every one, for cases that settle them all
	held   map[string]bool   // ids that are out here
	bytes  int64             // of those
	total  int               // handed out ever
	err    error             // Receive said it; nil: it goes on
}

func newHand(fail failure, b broker.Budget) *hand {
	return &hand{fail: fail, more: make(chan struct{}, 1), budget: b, held: make(map[string]bool)}
}

// enter takes what was handed out, and checks that it is within the budget and not out here already.
func (h *hand) enter(ms []broker.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range ms {
		msg, name := &ms[i], id(&ms[i])
		if h.held[name] {
			h.fail("message %s was handed out again while it is out here", name)
		}
		h.held[name] = true
		h.bytes += size(msg)
		h.got, h.all = append(h.got, msg), append(h.all, msg)
	}
	h.total += len(ms)
	if len(h.held) > h.budget.Messages {
		h.fail("%d messages are out, the budget is %d", len(h.held), h.budget.Messages)
	}
	h.wake()
}

// release lets go of what is settled, and returns what was out of it.
func (h *hand) release(ms []*broker.Message) (were []*broker.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, msg := range ms {
		if h.held[id(msg)] {
			delete(h.held, id(msg))
			h.bytes -= size(msg)
			were = append(were, msg)
		}
	}
	return were
}

// end takes note that Receive has ended.
func (h *hand) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	h.wake()
}

// wake lets take look again.
func (h *hand) wake() {
	select {
	case h.more <- struct{}{}:
	default:
	}
}

// take takes up to n messages, as many as come within d. The error is what Receive said when it ended.
func (h *hand) take(n int, d time.Duration) ([]*broker.Message, error) {
	end := time.NewTimer(d)
	defer end.Stop()
	for {
		if ms, err, enough := h.cut(n, false); enough {
			return ms, err
		}
		select {
		case <-h.more:
		case <-end.C:
			ms, err, _ := h.cut(n, true)
			return ms, err
		}
	}
}

// cut takes n messages where they are there, or no more will come; less: or fewer of them.
func (h *hand) cut(n int, less bool) (ms []*broker.Message, err error, enough bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.got) < n && h.err == nil && !less {
		return nil, nil, false
	}
	n = min(n, len(h.got))
	ms, h.got = h.got[:n:n], h.got[n:]
	return ms, h.err, true
}

// untook returns all messages so far, also those that the case has taken.
func (h *hand) untook() []*broker.Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	ms := h.all
	h.got, h.all = nil, nil
	return ms
}

// out is how many messages are out, and how many bytes they have.
func (h *hand) out() (messages int, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held), h.bytes
}

// ever is how many messages were handed out.
func (h *hand) ever() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total
}

// why is the error with which Receive ended.
func (h *hand) why() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// setBudget changes the budget by which what is out is judged, and that of Open.
func (h *hand) setBudget(b broker.Budget) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.budget = b
}

func (h *hand) atMost() broker.Budget {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.budget
}

// text is what a failure shows of it.
func (h *hand) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := fmt.Sprintf("%d messages were handed out, %d are out", h.total, len(h.held))
	if h.err != nil {
		s += fmt.Sprintf(", Receive said %v", h.err)
	}
	return s
}
