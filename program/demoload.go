package program

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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

// load publishes numbered messages and keeps count of those the server has confirmed.
type load struct {
	js       jetstream.JetStream
	subject  string
	duration time.Duration

	phase atomic.Pointer[string]
	// futures are the server's answers, by number. The load's own until run has returned.
	futures []jetstream.PubAckFuture
}

// loadTick is how often the load publishes.
const loadTick = 5 * time.Millisecond

// run publishes until its duration has passed or ctx ends, then waits for the last confirmations.
func (l *load) run(ctx context.Context) error {
	start, owed := time.Now(), 0.0
	tick := time.NewTicker(loadTick)
	defer tick.Stop()
	last := start
	var n uint64
	for {
		var now time.Time
		select {
		case <-ctx.Done():
			return l.settle(context.WithoutCancel(ctx))
		case now = <-tick.C:
		}
		p := phaseAt(now.Sub(start), l.duration)
		l.phase.Store(&p.name)
		if p.name == "over" {
			return l.settle(ctx)
		}
		owed += p.rate * now.Sub(last).Seconds()
		last = now
		for ; owed >= 1; owed-- {
			if err := l.publish(n); err != nil {
				return fmt.Errorf("publishing message %d: %w", n, err)
			}
			n++
		}
	}
}

func (l *load) publish(n uint64) error {
	body := make([]byte, 16)
	binary.BigEndian.PutUint64(body, n)
	binary.BigEndian.PutUint64(body[8:], uint64(time.Now().UnixNano()))
	f, err := l.js.PublishMsgAsync(&nats.Msg{Subject: l.subject, Data: body}, jetstream.WithMsgID(strconv.FormatUint(n, 10)))
	if err == nil {
		l.futures = append(l.futures, f)
	}
	return err
}

// confirmed says which numbers the server has confirmed. After run.
func (l *load) confirmed() []bool {
	ok := make([]bool, len(l.futures))
	for i, f := range l.futures {
		select {
		case <-f.Ok():
			ok[i] = true
		default:
		}
	}
	return ok
}

// settle waits until the server has answered every publish.
func (l *load) settle(ctx context.Context) error {
	select {
	case <-l.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Second):
		return fmt.Errorf("the server did not confirm %d publishes", l.js.PublishAsyncPending())
	}
}
