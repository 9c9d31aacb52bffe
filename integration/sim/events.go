package sim

import (
	"errors"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// events are what a consumer has told.
type events struct {
	p *process

	mu      sync.Mutex
	state   consumer.State
	states  int
	handled int64
	skipped int64
	letters int64
	failed  int64
	spilled int64
	lost    int64
	gone    int64 // Unconfirmed
	goneAll bool  // Unconfirmed of an unknown number
	skips   int64 // in gaps
	drained int
	// unconfirmed is when settles were told to be.
	unconfirmed []time.Time
	stuck       int
	replaced    int
}

func newEvents(p *process) *events { return &events{p: p} }

// observe is told each event.
func (e *events) observe(ev consumer.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch ev := ev.(type) {
	case consumer.StateChanged:
		if e.states > 0 && ev.State <= e.state {
			e.p.run.book.find("%s is %v after it was %v", e.p.name, ev.State, e.state)
		}
		e.state = ev.State
		e.states++
	case consumer.SourceEvent:
		switch ev.Kind {
		case broker.Unconfirmed:
			e.unconfirmed = append(e.unconfirmed, time.Now())
			e.gone += max(0, ev.N)
			e.goneAll = e.goneAll || ev.N < 0
		case broker.Gap:
			e.skips += max(0, ev.N)
		}
	case consumer.Handled:
		e.handled += int64(ev.N)
	case consumer.Skipped:
		e.skipped++
	case consumer.Failed:
		e.failed++
		if e.p.run.schedule.Settings.Bridge && errors.Is(ev.Err, broker.ErrNoTopic) {
			e.p.run.book.unpublished(e.p, numberOf(ev.Message.Value), ev.Err)
		}
	case consumer.DeadLettered:
		e.letters++
	case consumer.RetryPublished:
		e.spilled++
	case consumer.Lost:
		e.lost += int64(ev.N)
		e.p.run.book.note("%s lost %d: %v", e.p.name, ev.N, ev.Err)
	case consumer.Stuck:
		e.stuck++
		if ev.Replaced {
			e.replaced++
		}
		e.p.run.book.note("%s has a stuck handler, replaced %v", e.p.name, ev.Replaced)
	case consumer.Drained:
		e.drained++
	}
}
