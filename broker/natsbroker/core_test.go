package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

type openedCore struct {
	*natsbroker.CoreSource
	events *events
	traits broker.Traits
}

func openCore(t testing.TB, url string, budget broker.Budget) *openedCore {
	t.Helper()
	return openCoreOf(t, natsbroker.CoreConfig{Connection: config(url).Connection, Subjects: []string{"s.*", "t"}, Queue: "q"},
		budget)
}

func openCoreOf(t testing.TB, cfg natsbroker.CoreConfig, budget broker.Budget) *openedCore {
	t.Helper()
	s, err := natsbroker.NewCoreSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ev := &events{}
	tr, err := s.Open(context.Background(), broker.Options{Budget: budget, Observe: ev.observe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSource(t, s) })
	return &openedCore{s, ev, tr}
}

func (s *openedCore) lost() (n int64) {
	for _, e := range s.events.of(broker.Gap) {
		n += e.N
	}
	return n
}

func corePublish(t testing.TB, nc *nats.Conn, n int) {
	t.Helper()
	for i := range n {
		if err := nc.Publish("s.a", fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestCoreQueueGroup(t *testing.T) {
	ts := startServer(t, noJetStream)
	nc := ts.admin().nc
	roomy := broker.Budget{Messages: 1000, Bytes: 1 << 20}
	s, other := openCore(t, ts.url(), roomy), openCore(t, ts.url(), roomy)
	if !s.traits.AtMostOnce || s.traits.Attempts != broker.Exact || s.traits.NativeDelay != 0 {
		t.Errorf("traits are %+v", s.traits)
	}
	if l := s.Lag(); l.Waiting != -1 || l.Unsettled != -1 {
		t.Errorf("lag is %+v", l)
	}
	corePublish(t, nc, 100)
	d, o := drainAll(s), drainAll(other)
	total := func() int {
		var n int
		for _, d := range []*drainer{d, o} {
			distinct, extra := d.seen()
			n += distinct + extra
		}
		return n
	}
	eventually(t, "each message comes to one of both", func() bool { return total() == 100 })
	// A paused one leaves the group; the other one gets all.
	subs := ts.srv.NumSubscriptions()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := s.Pause("t"); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("Pause of a topic: %v", err)
	}
	eventually(t, "it left the group", func() bool { return ts.srv.NumSubscriptions() == subs-2 })
	corePublish(t, nc, 50)
	eventually(t, "the other one gets all", func() bool { return total() == 150 })
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	d.stop(t)
	o.stop(t)
}

func TestCoreSettle(t *testing.T) {
	ts := startServer(t, noJetStream)
	nc := ts.admin().nc
	s := openCore(t, ts.url(), broker.Budget{Messages: 10, Bytes: 1 << 20})
	m := nats.NewMsg("t")
	m.Header.Set("Longshore-Key", "k")
	if err := nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	corePublish(t, nc, 1)
	ms := receive(t, s, 2)
	for i := range ms {
		if ms[i].Topic == "t" && string(ms[i].Key) != "k" || ms[i].Offset != -1 || ms[i].Attempt != 1 ||
			ms[i].Time().Before(time.Now().Add(-time.Minute)) {
			t.Errorf("message %+v", ms[i])
		}
	}
	c := ms[0].Claim
	if err := s.Nack(c, []broker.Back{{Token: ms[0].Token}}); !errors.Is(err, broker.ErrLost) {
		t.Errorf("Nack: %v", err)
	}
	ack(t, s, ms[1])
	if err := s.Ack(c, []uint64{ms[0].Token, ms[1].Token}); !errors.Is(err, broker.ErrSettled) {
		t.Errorf("Ack again: %v", err)
	}
	closeSource(t, s)
	if !errors.Is(c.Cause(), broker.ErrClosed) {
		t.Errorf("the claim ended by %v", c.Cause())
	}
}

// What does not fit into the budget is dropped, and counted exactly; also what is not handed out at Stop.
func TestCoreDropsAreCounted(t *testing.T) {
	t.Parallel()
	ts := startServer(t, noJetStream)
	nc := ts.admin().nc
	s := openCore(t, ts.url(), broker.Budget{Messages: 10, Bytes: 1 << 20})
	corePublish(t, nc, 100)
	eventually(t, "90 are dropped", func() bool { return s.lost() == 90 })
	ack(t, s, receive(t, s, 4)...)
	s.Stop()
	if _, err := s.Receive(make([]broker.Message, 1)); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("Receive after Stop: %v", err)
	}
	eventually(t, "and 6 at Stop", func() bool { return s.lost() == 96 })
}

func TestCoreReconnects(t *testing.T) {
	ts := startServer(t, noJetStream)
	a := ts.admin()
	nc := a.nc
	s := openCore(t, ts.url(), broker.Budget{Messages: 100, Bytes: 1 << 20})
	ts.down()
	eventually(t, "Down and Gap are told", func() bool {
		g := s.events.of(broker.Gap)
		return len(s.events.of(broker.Down)) > 0 && len(g) == 1 && g[0].N == -1
	})
	ts.up()
	eventually(t, "Up is told", func() bool { return len(s.events.of(broker.Up)) == 2 })
	a.again()
	corePublish(t, nc, 10)
	ack(t, s, receive(t, s, 10)...)
}

func TestCoreConfig(t *testing.T) {
	if _, err := natsbroker.NewCoreSource(natsbroker.CoreConfig{}); err == nil {
		t.Error("accepted without subjects and queue")
	}
	// each would be a subscription of its own
	_, err := natsbroker.NewCoreSource(natsbroker.CoreConfig{Subjects: []string{"a.*", "*.b"}, Queue: "q"})
	if err == nil || !strings.Contains(err.Error(), `Subjects[1] is "*.b", which overlaps with Subjects[0]`) {
		t.Errorf("subjects that overlap: %v", err)
	}
	s, err := natsbroker.NewCoreSource(natsbroker.CoreConfig{Subjects: []string{"a"}, Queue: "q"})
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	closeSource(t, s)
	closeSource(t, s)
	if _, err := s.Open(context.Background(), broker.Options{}); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("Open after Close: %v", err)
	}
}
