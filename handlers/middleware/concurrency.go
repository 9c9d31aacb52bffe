package middleware

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// A ConcurrencyLimit lets so many calls run at once; its Middleware is a consumer.Middleware. One may wrap several handlers,
// which share it. A message beyond the limit waits without a worker (see consumer.Defer), so that a slow handler cannot take
// every worker from the others; the one that has waited longest is next. A call that has not returned half a minute after the
// consumer's Timeout, and whose slot others wait for, counts no more: it may never return. The limit is of this process, or, with
// ShareBy, of all of them. Safe for concurrent use.
type ConcurrencyLimit struct {
	mu      sync.Mutex
	limit   int
	sharing sharing
	timer   *time.Timer // calls the next of the line; nil: none was needed so far
	running running
	line    turns
	late    bool // who was called last has not come in time: until one does, nothing is set aside, for the slots would stand idle
}

// A message as it is named while it is here.
type message struct {
	claim *broker.Claim
	token uint64
}

// lookAgain is after how long a message that waits for a limit looks for itself: the one that was woken before it may have gone
// back to the broker.
const lookAgain = 5 * time.Second

// NewConcurrencyLimit allows limit calls at once, at least 1.
func NewConcurrencyLimit(limit int) (*ConcurrencyLimit, error) {
	l := &ConcurrencyLimit{running: running{of: map[*call]struct{}{}}}
	return l, l.Set(limit)
}

// Set changes the limit. Calls that run go on.
func (l *ConcurrencyLimit) Set(limit int) error {
	if limit < 1 {
		return fmt.Errorf("middleware: concurrency limit: %d, want at least 1", limit)
	}
	l.mu.Lock()
	l.limit = limit
	l.mu.Unlock()
	l.wake()
	return nil
}

// ShareBy makes the limit one of all processes together: this one has the part of it that its sources say it has of the work,
// and follows when that changes; calls that run go on. The part is rounded down, but is one call at least, so that all processes
// together exceed a limit below their number. Give it all sources of the consumer, that of retry topics too, before the consumer
// runs; of two sources of one group in a process each counts the group's partitions, so the part is too small. It fails where one
// of them cannot tell, and then nothing is changed.
func (l *ConcurrencyLimit) ShareBy(sources ...broker.Sharer) error {
	by, err := shareBy(sources)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sharing = by
	return nil
}

// Kind is concurrency_limit, its name in a configuration file.
func (l *ConcurrencyLimit) Kind() string { return "concurrency_limit" }

// Share is which part of the limit this process has now, 0 to 1, where it is shared.
func (l *ConcurrencyLimit) Share() (part float64, shared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sharing.at(time.Now()).Part(), l.sharing.shared()
}

// Settings are the limit, as last set.
func (l *ConcurrencyLimit) Settings() map[string]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return map[string]float64{settingLimit: float64(l.limit)}
}

// Change is Set by the setting's name. The error names what is wrong.
func (l *ConcurrencyLimit) Change(settings map[string]float64) error {
	next, err := changed(l.Kind(), l.Settings(), settings)
	if err != nil {
		return err
	}
	return l.Set(int(next[settingLimit]))
}

// most is how many calls may run now. It needs l.mu.
func (l *ConcurrencyLimit) most() int {
	if !l.sharing.shared() {
		return l.limit
	}
	return portion(l.limit, l.sharing.at(time.Now()))
}

// Middleware defers what is beyond the limit.
func (l *ConcurrencyLimit) Middleware(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		name := message{m.Claim, m.Token}
		c := l.enter(ctx, name)
		if c == nil {
			return consumer.Defer(lookAgain, func(wake func() bool) { l.wait(name, wake) })
		}
		defer l.leave(c)
		return next(ctx, m)
	}
}

// enter takes a slot for a message whose turn it is; nil: there is none for it.
func (l *ConcurrencyLimit) enter(ctx context.Context, m message) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.late = l.line.missLate(now) || l.late && !l.line.due(m)
	free := l.most()
	if !l.late {
		free -= l.line.ahead(m)
	}
	if l.running.n() >= free {
		l.running.lapse(now)
	}
	if l.running.n() >= free {
		return nil
	}
	l.line.forget(m)
	return l.running.enter(ctx)
}

// wait has a message wait for its turn. wake is that of consumer.Defer.
func (l *ConcurrencyLimit) wait(m message, wake func() bool) {
	l.mu.Lock()
	l.line.wait(m, wake, time.Now())
	l.mu.Unlock()
	l.wake() // a slot may have become free since it was refused one
}

func (l *ConcurrencyLimit) leave(c *call) {
	l.mu.Lock()
	l.running.leave(c)
	l.mu.Unlock()
	l.wake()
}

// wake calls as many out of the line as there are free slots, beyond those that are set aside for who was called before. One that
// is not waiting any more makes room for the next.
func (l *ConcurrencyLimit) wake() {
	for {
		l.mu.Lock()
		now := time.Now()
		l.late = l.line.missLate(now) || l.late
		if l.line.waiting.Len() == 0 || l.running.n()+l.line.called.Len() >= l.most() {
			l.arm(now)
			l.mu.Unlock()
			return
		}
		t, wake := l.line.call(now)
		l.mu.Unlock()
		if !wake() {
			l.mu.Lock()
			l.line.miss(t)
			l.mu.Unlock()
		}
	}
}

// arm has those that wait looked at again: where the part may become a larger one, and where one that was called may not come,
// and with it who would leave its slot. It needs l.mu.
func (l *ConcurrencyLimit) arm(now time.Time) {
	shared, first := l.sharing.shared(), l.line.called.Front()
	if shared && l.most() == 0 { // nobody is called, and so nobody is found gone
		l.line.forgetGone(now)
	}
	wait := lookAtShare
	if first != nil {
		wait = min(wait, first.Value.(*turn).since.Add(onItsWay).Sub(now))
	}
	switch {
	case l.line.waiting.Len() == 0, !shared && first == nil:
	case l.timer == nil:
		l.timer = time.AfterFunc(wait, l.wake)
	default:
		l.timer.Reset(wait)
	}
}
