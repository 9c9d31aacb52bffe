package natsbroker_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// Where the budget is used up, each ack frees one place of it. Not each is asked for by a pull of its own, which the server
// answers by itself, too; and it goes on.
func TestSmallPullsAreFew(t *testing.T) {
	t.Parallel()
	const budget, n = 40, 300
	ts, a := serveStream(t)
	var pulls atomic.Int64
	if _, err := a.nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT.>", func(*nats.Msg) { pulls.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if err := a.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	a.publish(1, budget+n)
	begun := time.Now()
	s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget = broker.Budget{Messages: budget, Bytes: 1 << 20} })
	out := receive(t, s, budget)
	for range n {
		ack(t, s, out[0])
		out = append(out[1:], receive(t, s, 1)...)
	}
	// One for each quarter of the budget, and small ones each 2 ms: on a slow machine these are more.
	most := int64((budget+n)/(budget/4)) + int64(time.Since(begun)/(2*time.Millisecond)) + 2
	if got := pulls.Load(); got > most {
		t.Errorf("%d pulls for %d messages, want at most %d", got, n, most)
	}
	ack(t, s, out...)
	a.settled()
}
