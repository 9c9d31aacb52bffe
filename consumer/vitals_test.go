package consumer

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/pool"
)

// TestVitals: what should move, in which situation.
func TestVitals(t *testing.T) {
	for _, c := range []struct {
		what           string
		state          State
		paused, down   bool
		delayed        bool
		lag, held      int64
		p              pool.Stats
		receive, begin bool
	}{
		{what: "idle", state: Running, p: pool.Stats{Live: 1, Max: 4}},
		{what: "lag", state: Running, lag: 9, p: pool.Stats{Live: 1, Max: 4}, receive: true},
		{what: "lag that is held", state: Running, lag: 9, held: 9, p: pool.Stats{Live: 1, Max: 4}},
		{what: "lag that is held, all busy", state: Running, lag: 9, held: 9, p: pool.Stats{Live: 4, Busy: 4, Max: 4}},
		{what: "lag, some of it held", state: Running, lag: 9, held: 8, p: pool.Stats{Live: 1, Max: 4}, receive: true},
		{what: "lag unknown", state: Running, lag: -1, p: pool.Stats{Live: 1, Max: 4}},
		{what: "lag, some busy", state: Running, lag: 9, p: pool.Stats{Live: 3, Busy: 3, Max: 4}, receive: true},
		{what: "lag, all busy", state: Running, lag: 9, p: pool.Stats{Live: 4, Busy: 4, Max: 4}, begin: true},
		{what: "lag unknown, all busy", state: Running, lag: -1, p: pool.Stats{Live: 4, Busy: 4, Max: 4}},
		{what: "no lag, all busy", state: Running, p: pool.Stats{Live: 4, Busy: 4, Max: 4}},
		{what: "queue", state: Running, lag: 9, p: pool.Stats{Live: 2, Busy: 1, Max: 4, Backlog: 1}, begin: true},
		{what: "paused", state: Running, paused: true, lag: 9, p: pool.Stats{Live: 1, Max: 4, Backlog: 3}},
		{what: "draining", state: Draining, lag: 9, p: pool.Stats{Live: 1, Max: 4, Backlog: 3}},
		{what: "no contact", state: Running, down: true, lag: 9, p: pool.Stats{Live: 1, Max: 4}},
		{what: "no contact, queue", state: Running, down: true, lag: 9, p: pool.Stats{Live: 1, Max: 4, Backlog: 2}, begin: true},
		{what: "delayed", state: Running, delayed: true, lag: 9, p: pool.Stats{Live: 1, Max: 4}},
	} {
		lag := broker.Lag{Waiting: c.lag, Held: c.held}
		v := vitals{Stats: Stats{State: c.state, Paused: c.paused, Lag: lag, Pool: c.p}, up: !c.down, delayed: c.delayed}
		if v.shouldReceive() != c.receive || v.shouldBegin() != c.begin {
			t.Errorf("%s: should receive %v, should begin %v, want %v, %v", c.what, v.shouldReceive(), v.shouldBegin(), c.receive, c.begin)
		}
	}
}

// TestPulseOfAWedgedPool: messages wait, a worker is idle, nothing begins.
func TestPulseOfAWedgedPool(t *testing.T) {
	var p pulse
	at := time.Unix(1000, 0)
	see := func(in, done int64, backlog int) time.Duration {
		at = at.Add(time.Second)
		_, still := p.see(vitals{Stats: Stats{State: Running, Lag: broker.UnknownLag(),
			Pool: pool.Stats{In: in, Done: done, Backlog: backlog, Live: 1, Max: 4}}, up: true}, at)
		return still
	}
	for i, c := range []struct {
		in, done int64
		backlog  int
		want     time.Duration
	}{
		{5, 5, 0, 0}, {9, 5, 4, 0}, {9, 5, 4, time.Second}, {12, 5, 7, 2 * time.Second}, // more come, none begins
		{12, 5, 6, 0}, {12, 5, 6, time.Second}, {12, 6, 6, 0}, {12, 6, 0, 0}, {13, 6, 1, 0},
	} {
		if got := see(c.in, c.done, c.backlog); got != c.want {
			t.Errorf("look %d: still for %v, want %v", i, got, c.want)
		}
	}
}
