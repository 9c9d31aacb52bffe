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
	queue   []queuedEvent
	contact contact.Contact // by what was told, or is told now
	trouble error

	// What was last said of contact; it may not be told yet.
	known, down bool
	downSince   time.Time
	asked       time.Time // when the newest question was asked that was answered
	turn        int       // where it stands in the queue, from 1 on; 0: it does not
}

// A queuedEvent is one that was said. Of Down and Up it is decided when they are told whether they are: were that decided before,
// two Downs of which nobody could tell for a while, since Observe did not return or the process stood still, would be told at
// once.
type queuedEvent struct {
	broker.Event
	at time.Time // of Down: when it failed; of Up: when what was answered was asked
}

// told takes note of it and says whether it is told.
func (e *queuedEvent) told(c *contact.Contact, now time.Time) bool {
	switch e.Kind {
	case broker.Down:
		return c.Lost(e.at, now, e.Err)
	case broker.Up:
		return c.Found(e.at)
	}
	return true
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
	q.queue = append(q.queue, queuedEvent{Event: e})
	q.mu.Unlock()
	q.wake()
}

// Lost takes note of an exchange with the broker that failed. Down is told as its comment in package broker says: at once, or
// when a second has passed since the one before, or not where contact was found again by then.
func (q *EventQueue) Lost(err error) {
	now := time.Now()
	q.mu.Lock()
	q.trouble = err
	if q.turn > 0 && q.down {
		q.queue[q.turn-1].Err = err // it is not told yet
	} else {
		q.queue = append(q.queue, queuedEvent{broker.Event{Kind: broker.Down, Err: err}, now})
		q.turn = len(q.queue)
	}
	if !q.down {
		q.known, q.down, q.downSince = true, true, now
	}
	q.mu.Unlock()
	q.wake() // also where nothing is told yet: Tell returns when it is
}

// Unanswered is Lost of what was asked at a time, and says nothing where an answer to what was asked later has come since: the
// question was asked of a broker that went away, and one that came back does not know it. It is for an adapter with one way to
// its broker; where others go on without the one that is silent, Lost is right.
func (q *EventQueue) Unanswered(asked time.Time, err error) {
	q.mu.Lock()
	stale := asked.Before(q.asked)
	q.mu.Unlock()
	if !stale {
		q.Lost(err)
	}
}

// Found takes note of an answer of the broker to what was asked at a time. Up is told after Open, and after each Down. An answer
// that was on its way when contact was lost says nothing of now: an Up by it would be false.
func (q *EventQueue) Found(asked time.Time) {
	q.mu.Lock()
	if asked.After(q.asked) {
		q.asked = asked
	}
	up := !q.known || q.down && asked.After(q.downSince)
	if up {
		q.known, q.down = true, false
		q.queue = append(q.queue, queuedEvent{broker.Event{Kind: broker.Up}, asked})
		q.turn = len(q.queue)
	}
	q.mu.Unlock()
	if up {
		q.wake()
	}
}

// FoundAgain is Found that only ends a Down: for an answer before Open has what it wants, which is no first Up.
func (q *EventQueue) FoundAgain(asked time.Time) {
	q.mu.Lock()
	down := q.down
	q.mu.Unlock()
	if down {
		q.Found(asked)
	}
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

// take returns what is to be told of what is queued, and when a Down is due that is not told yet.
func (q *EventQueue) take() (es []broker.Event, next time.Time) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.queue {
		if e.told(&q.contact, now) {
			es = append(es, e.Event)
		}
	}
	q.queue, q.turn = nil, 0
	if err := q.contact.Late(now); err != nil {
		es = append(es, broker.Event{Kind: broker.Down, Err: err})
	}
	return es, q.contact.Due()
}

// During tells what is said while f runs: for an adapter that closes, whose loop has ended and which waits for a broker that
// may be away. It returns f's error, when all is told that was said before f returned.
func (q *EventQueue) During(f func() error) error {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { q.Run(ctx) })
	err := f()
	stop()
	wg.Wait()
	return err
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
