package consumer

import (
	"math"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/pool"
)

// Stats are a Consumer's figures, counted since Run began.
type Stats struct {
	State State
	// Paused: no messages are taken until Resume.
	Paused bool
	// Received from the source, redeliveries included.
	Received int64
	// Handled: acked because a handler returned nil.
	Handled int64
	// Skipped: acked because a handler returned Skip.
	Skipped int64
	// Failed runs.
	Failed int64
	// Retried: failed runs whose message is tried again.
	Retried int64
	// RetryPublished: of those, published to a retry topic, confirmed and acked. They are received again when they are due.
	RetryPublished int64
	// Deferred: calls that returned Defer.
	Deferred int64
	// Limited: of those, that wait until something wakes them, as what a limit puts off does; a wait for a time alone is none.
	Limited int64
	// DeadLettered: published, confirmed and acked.
	DeadLettered int64
	// LettersDelayed: dead letters that could not be published so far. Each is held here, and tried again; they are in InFlight.
	LettersDelayed int
	// GivenBack to the broker without a finished run.
	GivenBack int64
	// Lost: settles that came too late.
	Lost int64
	// Gaps: messages that the broker no longer had when their turn came; at least, where it cannot tell how many.
	Gaps int64
	// Unordered: messages without a key in an order by key; they are handled in no order.
	Unordered int64
	// InFlight: received and not settled: queued, running, parked, or on their way to the dead letters.
	InFlight int64
	// Parked wait here for their next attempt, or are deferred; PutOff of these did not fail: their handler, or a limit around it,
	// deferred them.
	Parked, PutOff int
	// AtLimit: of PutOff, those that wait until something wakes them, as what a limit puts off does.
	AtLimit int
	// Lanes is how many keys or partitions are at large in an order, and Waiting how many messages wait for their turn in them.
	Lanes, Waiting int
	// FullLanes have so many that wait in them that nothing more is taken of their partition, or of their source: see Lane.
	FullLanes int
	// Claims is how many claims the sources have, those of the retry topics not counted. 0 while running: it has nothing to read,
	// since other processes have it all, or did until now.
	Claims int
	// Stuck handlers that were replaced and have not returned.
	Stuck int
	// LastProgress is when a handler last returned nil, or Skip; zero: never.
	LastProgress time.Time
	Lag          broker.Lag
	Pool         pool.Stats
}

// figures looks at all parts and changes none.
type figures struct {
	life    *life
	feeds   feeds
	intake  *intake
	claims  *claims
	queue   *queue
	workers *workers
	till    *till
	parked  *parking
	letters *letters
	tell    *teller

	watchdog *watchdog
}

func (f *figures) stats() Stats {
	n := &f.tell.count
	s := Stats{
		State: f.life.at(), Paused: f.intake.gate.isShut(),
		Received: f.intake.received.Load(), Handled: n.handled.Load(), Skipped: n.skipped.Load(), Failed: n.failed.Load(),
		Retried: n.retried.Load(), RetryPublished: n.retryPublished.Load(), Deferred: n.deferred.Load(), Limited: n.limited.Load(),
		DeadLettered: n.deadLettered.Load(), LettersDelayed: f.letters.delayed(),
		GivenBack: n.givenBack.Load(), Lost: n.lost.Load(), Gaps: n.gaps.Load(), Unordered: n.unordered.Load(),
		InFlight: f.till.held.Load(), Parked: f.parked.len(), PutOff: f.parked.putOffs(), AtLimit: f.parked.atLimit(),
		Claims: f.feeds.claims(), Stuck: int(f.workers.stuck.Load()),
	}
	for _, t := range f.claims.lanes.all() {
		n, waiting, full := t.size()
		s.Lanes, s.Waiting, s.FullLanes = s.Lanes+n, s.Waiting+waiting, s.FullLanes+full
	}
	if at := f.tell.progress.Load(); at != 0 {
		s.LastProgress = f.tell.clock.wall(at).Truncate(time.Millisecond) // the same at nearly each look
	}
	s.Lag = f.feeds.lag()
	s.Pool = f.queue.stats()
	s.PutOff = min(s.PutOff, s.Parked) // they were looked at one after the other
	s.AtLimit = min(s.AtLimit, s.PutOff)
	return s
}

// oldest is as Consumer.Oldest says.
func (f *figures) oldest() time.Time {
	oldest := int64(math.MaxInt64)
	f.eachHeld(func(m *Message) {
		if m.Nanos != 0 {
			oldest = min(oldest, m.Nanos)
		}
	})
	if oldest == math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, oldest)
}

// eachHeld calls do with each message that was received and is not settled, in no order. do is called with locks held: it must
// not call back.
func (f *figures) eachHeld(do func(*Message)) {
	for _, k := range f.claims.present() {
		k.each(do)
	}
	for _, t := range f.claims.lanes.all() {
		t.each(do)
	}
	f.parked.each(do)
	f.letters.each(do)
}
