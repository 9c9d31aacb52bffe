package program

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"golang.org/x/sync/errgroup"
)

// A phase of the demo's load: a share of its duration at a rate.
type phase struct {
	name  string
	share float64
	rate  float64 // messages per second
}

// demoPhases step up, burst, and fall.
var demoPhases = []phase{
	{"trickle", 0.15, 100},
	{"step", 0.20, 1000},
	{"calm", 0.10, 200},
	{"burst", 0.20, 6000},
	{"fall", 0.20, 100},
	{"silence", 0.15, 0},
}

// phaseAt is the phase that holds at time t of a load of that duration.
func phaseAt(t, duration time.Duration) phase {
	end := 0.0
	for _, p := range demoPhases {
		end += p.share
		if t < time.Duration(end*float64(duration)) {
			return p
		}
	}
	return phase{name: "over"}
}

// load publishes numbered messages and keeps count of those the broker has confirmed.
type load struct {
	publisher broker.Publisher
	topic     string
	duration  time.Duration

	phase atomic.Pointer[string]

	mu      sync.Mutex
	stored  []bool // by number
	unknown int    // not confirmed
	failure error  // why, of the first
}

// loadTick is how often the load publishes.
const loadTick = 5 * time.Millisecond

// loadAtOnce is how many ticks' messages are on their way together.
const loadAtOnce = 16

// loadCatchUp is how much of what could not be sent in time is sent later: a machine that is too slow for the load gets less of
// it, instead of a batch that grows for as long as those before it take.
const loadCatchUp = 100 * time.Millisecond

// loadPatience is how long a message may take to be confirmed.
const loadPatience = 30 * time.Second

// run publishes until its duration has passed or ctx ends, then waits for the last confirmations.
func (l *load) run(ctx context.Context) error {
	var sending errgroup.Group
	sending.SetLimit(loadAtOnce)
	start, owed := time.Now(), debt(0)
	tick := time.NewTicker(loadTick)
	defer tick.Stop()
	last, n := start, uint64(0)
	for over := false; !over; {
		select {
		case <-ctx.Done():
			over = true
		case now := <-tick.C:
			p := phaseAt(now.Sub(start), l.duration)
			l.phase.Store(&p.name)
			over = p.name == "over"
			whole := owed.pay(p.rate, min(now.Sub(last), loadCatchUp))
			last = now
			if from := n; whole > 0 {
				n += whole
				sending.Go(func() error { l.publish(context.WithoutCancel(ctx), from, whole); return nil })
			}
		}
	}
	_ = sending.Wait()
	if l.failure != nil {
		return fmt.Errorf("%d messages were not confirmed: %w", l.unknown, l.failure)
	}
	return nil
}

// A debt is the part of a message that is due.
type debt float64

// pay says how many whole messages are due when so much time has passed at a rate, and keeps the rest. Time may go back: a ticker
// that is late stamps its ticks with when they were due, but for the delay of its own, which may be less the next time.
func (d *debt) pay(rate float64, passed time.Duration) uint64 {
	*d += debt(rate * passed.Seconds())
	whole := uint64(max(0, *d))
	*d -= debt(whole)
	return whole
}

// publish publishes count messages, numbered from a number on.
func (l *load) publish(ctx context.Context, from, count uint64) {
	ms := make([]broker.Outgoing, count)
	for i := range ms {
		n := from + uint64(i)
		body := binary.BigEndian.AppendUint64(make([]byte, 0, 16), n)
		body = binary.BigEndian.AppendUint64(body, uint64(time.Now().UnixNano()))
		ms[i] = broker.Outgoing{Topic: l.topic, Value: body, ID: strconv.FormatUint(n, 10)}
	}
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	failed, err := confirm(ctx, l.publisher, ms)
	not := make(map[string]bool, len(failed))
	for i := range failed {
		not[failed[i].ID] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = append(l.stored, make([]bool, max(0, int(from+count)-len(l.stored)))...)
	for i := range ms {
		l.stored[from+uint64(i)] = !not[ms[i].ID]
	}
	l.unknown += len(failed)
	l.failure = cmp.Or(l.failure, err)
}

// confirmed says which numbers the broker has confirmed. After run.
func (l *load) confirmed() []bool { return l.stored }
