package kit

import (
	"context"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/internal/contact"
)

// An EventQueue has events on their way to Options.Observe, in the order in which they were said, so that nobody who has
// something to say has to let go of a lock first; and it knows whether there is contact with the broker, and when that is told.
// It is safe for concurrent use. All but Tell and Run may be called with locks held, and do not block.
//
// An adapter with a loop calls Tell in it, when Ready says so and at the time that Tell returned. One without a loop lets a
// goroutine Run.
type EventQueue struct {
	observe func(broker.Event)
	ready   chan struct{}
	telling chan struct{} // has one element while somebody tells; a channel, since others wait while Observe runs

	mu      sync.Mutex
	queue   []broker.Event
	contact contact.Contact
	trouble error
}

// NewEventQueue makes one. Whoever tells needs Observe before.
func NewEventQueue() *EventQueue {
	return &EventQueue{ready: make(chan struct{}, 1), telling: make(chan struct{}, 1)}
}

// Observe sets who is told: Options.Observe. It comes before the first Tell or Run.
func (q *EventQueue) Observe(f func(broker.Event)) { q.observe = f }

// Say queues an event. Down and Up are said by Lost and Found.
func (q *EventQueue) Say(e broker.Event) {
	q.mu.Lock()
	q.queue = append(q.queue, e)
	q.mu.Unlock()
	q.wake()
}

// Lost takes note of an exchange with the broker that failed. Down is told as its comment in package broker says: at once, or
// when a second has passed since the one before, or not where contact was found again by then.
func (q *EventQueue) Lost(err error) {
	q.mu.Lock()
	q.trouble = err
	if q.contact.Lost(time.Now(), err) {
		q.queue = append(q.queue, broker.Event{Kind: broker.Down, Err: err})
	}
	q.mu.Unlock()
	q.wake() // also where nothing is told yet: Tell returns when it is
}

// Found takes note of an answer of the broker to what was asked at a time, and says whether Up is told: it is after Open, and
// after each Down. An answer that was on its way when contact was lost says nothing of now: an Up by it would be false.
func (q *EventQueue) Found(asked time.Time) (up bool) {
	q.mu.Lock()
	if up = q.contact.Found(asked); up {
		q.queue = append(q.queue, broker.Event{Kind: broker.Up})
	}
	q.mu.Unlock()
	if up {
		q.wake()
	}
	return up
}

// Trouble returns what the last Lost said, so that whoever gives up can say why; nil: there was none.
func (q *EventQueue) Trouble() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.trouble
}

// Ready receives when there is something for Tell to do.
func (q *EventQueue) Ready() <-chan struct{} { return q.ready }

func (q *EventQueue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Tell calls Observe with each event that is queued, one after the other. When it returns, all is told that was said before the
// call: so Assigned can be told before anything of the claim is handed out. It blocks while Observe does, or another Tell; call
// it with no lock held, and not from Observe. next is when to call it again though nobody says anything; zero: never.
func (q *EventQueue) Tell() (next time.Time) {
	q.telling <- struct{}{}
	defer func() { <-q.telling }()
	for {
		es, next := q.take()
		if len(es) == 0 {
			return next
		}
		for _, e := range es {
			q.observe(e)
		}
	}
}

// take returns what is queued, and when a Down is due that is not told yet.
func (q *EventQueue) take() (es []broker.Event, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.contact.Late(time.Now()); err != nil {
		q.queue = append(q.queue, broker.Event{Kind: broker.Down, Err: err})
	}
	es, q.queue = q.queue, nil
	return es, q.contact.Due()
}

// Run tells what is said until ctx ends, and then what was said before. It blocks.
func (q *EventQueue) Run(ctx context.Context) {
	late := time.NewTimer(time.Hour)
	defer late.Stop()
	for ctx.Err() == nil {
		wait := time.Hour
		if next := q.Tell(); !next.IsZero() {
			wait = max(0, time.Until(next))
		}
		late.Reset(wait)
		select {
		case <-q.ready:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	q.Tell()
}
