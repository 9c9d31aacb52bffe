package consumer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Health errors, for errors.Is.
var (
	// ErrNoProgress: there is work, and nothing moves: see Consumer.Health.
	ErrNoProgress = errors.New("consumer: no progress")
	// ErrTooManyStuck: MaxStuck handlers have not returned although their contexts ended. Only a restart helps.
	ErrTooManyStuck = errors.New("consumer: too many stuck handlers")
	// ErrEnded: Run has returned an error, which is wrapped beside it. This consumer handles nothing any more.
	ErrEnded = errors.New("consumer: Run has ended")
)

// hungAfter is after how many times noProgress handlers are taken for hung that hold all workers, where no Timeout says how long
// one may take.
const hungAfter = 10

// A health judges the figures from one look to the next.
type health struct {
	cfg     *Config
	life    *life
	feeds   feeds
	claims  *claims
	retries *retries
	figures *figures
	pulse   pulse
}

// check is as Consumer.Health says.
func (h *health) check(noProgress time.Duration) error {
	if err := h.life.ended.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, *err)
	}
	s := h.figures.stats()
	if limit := h.cfg.MaxStuck; h.cfg.Timeout > 0 && limit > 0 && s.Stuck >= limit {
		return fmt.Errorf("%w: %s has %d, MaxStuck is %d", ErrTooManyStuck, h.cfg.Name, s.Stuck, limit)
	}
	now := time.Now()
	v := vitals{Stats: s, up: h.feeds.connected(), delayed: h.retries.tell.clock.at(now) < h.retries.delayedUntil.Load()}
	v.starved = v.shouldReceive() && h.mayReceive()
	silent, still := h.pulse.see(v, now)
	if noProgress <= 0 {
		return nil
	}
	switch limit := h.handlerLimit(noProgress); {
	case silent >= noProgress:
		return fmt.Errorf("%w: %s has received nothing for %v, with lag %d and %d in flight",
			ErrNoProgress, h.cfg.Name, silent.Round(time.Second), s.Lag.Waiting, s.InFlight)
	case still >= noProgress && v.idle():
		return fmt.Errorf("%w: %s has begun nothing for %v, with %d waiting here and idle workers",
			ErrNoProgress, h.cfg.Name, still.Round(time.Second), s.Pool.Backlog)
	case still >= limit:
		return fmt.Errorf("%w: %s: no handler has begun or returned for %v, every worker (%d) is in one, with %d waiting here and "+
			"lag %d",
			ErrNoProgress, h.cfg.Name, still.Round(time.Second), s.Pool.Busy, s.Pool.Backlog, s.Lag.Waiting)
	}
	return nil
}

// handlerLimit is how long all workers may be in handlers, with none that begins or returns.
func (h *health) handlerLimit(noProgress time.Duration) time.Duration {
	if h.cfg.Timeout > 0 { // the watchdog replaces them before that
		return added(h.cfg.Timeout, h.cfg.StuckAfter, noProgress)
	}
	return hungAfter * min(noProgress, math.MaxInt64/hungAfter)
}

// added is the sum of times, none of which is negative, or the longest there is: who wants no limit says that.
func added(ds ...time.Duration) (sum time.Duration) {
	for _, d := range ds {
		sum += min(d, math.MaxInt64-sum)
	}
	return sum
}

// mayReceive says whether a source that has messages has room for them: no lane is full, nor is its part of the budget, nor a
// window of its claims because of what is held here. Full of anything else, it is the source that has forgotten something. Half
// of the budget will do, for a source counts bytes that nobody else sees: what it prefetched, and what a response is packed in.
func (h *health) mayReceive() bool {
	if slices.ContainsFunc(h.claims.lanes.all(), (*lanes).stillFull) {
		return false
	}
	held, feeds := h.held(), h.claims.feeds()
	budget := h.cfg.mainBudget()
	return slices.ContainsFunc(h.feeds, func(f *feed) bool {
		if lag := f.lag(); f.retries || lag.Waiting <= lag.Held || lag.Full { // it gives nobody more for now
			return false
		}
		var all broker.Budget
		for claim, b := range held {
			if of := feeds[claim]; of != nil && of != f { // nil: it has ended, and nobody knows whose it was
				continue
			}
			all.Messages, all.Bytes = all.Messages+b.Messages, all.Bytes+b.Bytes
			if w, ok := f.source.(broker.Windowed); ok && w.Window(claim) >= 1 {
				return false
			}
		}
		return all.Messages < budget.Messages/2 && all.Bytes < budget.Bytes/2
	})
}

// held is what is here of each claim.
func (h *health) held() map[*broker.Claim]broker.Budget {
	held := map[*broker.Claim]broker.Budget{}
	h.figures.eachHeld(func(m *Message) {
		b := held[m.Claim]
		held[m.Claim] = broker.Budget{Messages: b.Messages + 1, Bytes: b.Bytes + int64(weightOf(m))}
	})
	return held
}

// vitals are what one look at a consumer saw.
type vitals struct {
	Stats
	up bool // the source has contact
	// delayed: a message was given back to the broker with a delay that is not over. Enough of those, and the broker hands out no
	// other.
	delayed bool
	// starved: a source should be giving messages.
	starved bool
}

func (v *vitals) running() bool { return v.State == Running && !v.Paused }

// idle says whether a worker is free.
func (v *vitals) idle() bool { return v.Pool.Busy < v.Pool.Live }

// shouldReceive says whether a source that has room should be giving messages: there are some, none waits here, and a worker
// could take one.
func (v *vitals) shouldReceive() bool {
	return v.running() && v.up && !v.delayed && v.Lag.Waiting > v.Lag.Held && v.Pool.Backlog == 0 && v.Pool.Busy < v.Pool.Max
}

// shouldBegin says whether a handler should begin or return.
func (v *vitals) shouldBegin() bool {
	return v.running() && (v.Pool.Backlog > 0 || v.Lag.Waiting > v.Lag.Held && v.Pool.Busy >= v.Pool.Max)
}

// A pulse remembers since when nothing has moved, from look to look. It compares counters that exist anyway, so it costs the
// workers nothing.
type pulse struct {
	mu      sync.Mutex
	source  stillness
	workers stillness
}

// see takes a look, and returns for how long the source was silent, and no handler has begun or returned, though they should.
func (p *pulse) see(v vitals, now time.Time) (silent, still time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	silent = p.source.see(v.Received, v.starved, now)
	if !v.Lag.At.After(p.source.since) { // perhaps the lag is the one of then, and not true any more
		silent = 0
	}
	begun := v.Pool.In - int64(v.Pool.Backlog) - int64(v.Pool.Expected) // those are in lanes, or gather
	return silent, p.workers.see(begun+v.Pool.Done, v.shouldBegin(), now)
}

// stillness is a counter that did not change since then, although it should have at each look.
type stillness struct {
	count int64
	due   bool
	since time.Time
}

func (s *stillness) see(count int64, should bool, now time.Time) time.Duration {
	if !should || !s.due || count != s.count {
		*s = stillness{count: count, due: should, since: now}
	}
	return now.Sub(s.since)
}
