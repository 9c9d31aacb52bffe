package middleware

import (
	"container/list"
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
	timer   *time.Timer // looks at the part again, where the limit is shared; nil: nobody waited so far
	running running
	line    list.List // of *place
	places  map[message]*list.Element
	sweep   int // messages that wait until those are forgotten that went back to the broker
}

// A message as it is named while it is here.
type message struct {
	claim *broker.Claim
	token uint64
}

// A place in the line.
type place struct {
	m    message
	wake func() bool
}

// lookAgain is after how long a message that waits for a limit looks for itself: the one that was woken before it may have gone
// back to the broker.
const lookAgain = 5 * time.Second

// NewConcurrencyLimit allows limit calls at once, at least 1.
func NewConcurrencyLimit(limit int) (*ConcurrencyLimit, error) {
	l := &ConcurrencyLimit{places: map[message]*list.Element{}, running: running{of: map[*call]struct{}{}}}
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
// runs. It fails where one of them cannot tell, and then nothing is changed.
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

// enter takes a free slot; nil: there is none.
func (l *ConcurrencyLimit) enter(ctx context.Context, m message) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(m)
	most := l.most()
	if l.running.n() >= most {
		l.running.lapse(time.Now())
	}
	if l.running.n() >= most {
		return nil
	}
	return l.running.enter(ctx)
}

func (l *ConcurrencyLimit) forget(m message) {
	if e := l.places[m]; e != nil {
		l.line.Remove(e)
		delete(l.places, m)
	}
}

// wait takes a place in the line.
func (l *ConcurrencyLimit) wait(m message, wake func() bool) {
	l.mu.Lock()
	if l.sweep--; l.sweep < 0 {
		l.forgetEnded()
	}
	l.places[m] = l.line.PushBack(&place{m, wake})
	l.mu.Unlock()
	l.wake() // a slot may have become free since it was refused one
}

// forgetEnded forgets those whose claim has ended: they went back to the broker, and nobody else takes them out of the line while
// no slot becomes free.
func (l *ConcurrencyLimit) forgetEnded() {
	for m := range l.places {
		select {
		case <-m.claim.Ended():
			l.forget(m)
		default:
		}
	}
	l.sweep = max(1024, len(l.places))
}

func (l *ConcurrencyLimit) leave(c *call) {
	l.mu.Lock()
	l.running.leave(c)
	l.mu.Unlock()
	l.wake()
}

// wake calls as many out of the line as there are free slots. One that is not waiting any more makes room for the next.
func (l *ConcurrencyLimit) wake() {
	for called := 0; ; {
		l.mu.Lock()
		first := l.line.Front()
		if first == nil || l.running.n()+called >= l.most() {
			l.arm()
			l.mu.Unlock()
			return
		}
		p := first.Value.(*place)
		l.forget(p.m)
		l.mu.Unlock()
		if p.wake() {
			called++
		}
	}
}

// arm has those that wait look again soon whether the part is a larger one. It needs l.mu.
func (l *ConcurrencyLimit) arm() {
	if l.sharing.shared() && l.most() == 0 { // nobody is called, and so nobody is found gone
		l.forgetEnded()
	}
	switch {
	case !l.sharing.shared() || l.line.Len() == 0:
	case l.timer == nil:
		l.timer = time.AfterFunc(lookAtShare, l.wake)
	default:
		l.timer.Reset(lookAtShare)
	}
}
