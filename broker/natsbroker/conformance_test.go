package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// TestConformance runs the suite that every adapter passes, on an embedded server and, with LONGSHORE_REAL, on one in a process
// of its own, and what an order may change of it with every process in an order. NATSBROKER_RUNS repeats it; 10 is what a release
// needs.
func TestConformance(t *testing.T) { // not beside other tests: it counts goroutines
	runs, _ := strconv.Atoi(os.Getenv("NATSBROKER_RUNS"))
	for i := range max(runs, 1) {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Run("embedded", func(t *testing.T) {
				t.Parallel()
				brokertest.Run(t, harness(embedded))
			})
			t.Run("ordered", func(t *testing.T) {
				inFull(t)
				t.Parallel()
				brokertest.Run(t, orderedHarness())
			})
			t.Run("process", func(t *testing.T) {
				inFull(t)
				t.Parallel()
				brokertest.Run(t, harness(ownProcess))
			})
		})
	}
}

// inFull skips a variant of the suite that is not needed each time.
func inFull(t *testing.T) {
	t.Helper()
	if !full() {
		t.Skip("a variant of the suite, which runs with LONGSHORE_REAL=1")
	}
}

// full says that what takes long is not cut short.
func full() bool { return os.Getenv("LONGSHORE_REAL") != "" }

// A place is where the server of a case runs.
type place struct {
	url      string
	port     int
	down, up func()
}

func embedded(t testing.TB) place {
	ts := startServer(t, func(o *server.Options) { o.LameDuckGracePeriod, o.LameDuckDuration = -time.Hour, 2*time.Hour })
	lame := func() { time.Sleep(testLease / 4) } // longer than between two contacts
	return place{ts.url(), ts.opts.Port, func() { ts.lameDown(lame) }, ts.up}
}

func ownProcess(t testing.TB) place {
	p := startServerProcess(t)
	return place{p.url(), p.port, p.stop, p.up}
}

// Messages are really lost to another process when this one gets no processor for so long.
const testLease = 800 * time.Millisecond

func harness(where func(testing.TB) place) brokertest.Harness {
	return brokertest.Harness{
		New:              func(t testing.TB, s brokertest.Setup) *brokertest.System { return newSystem(t, where(t), s) },
		Traits:           broker.Traits{Attempts: broker.AtMost, NativeDelay: 10 * 365 * 24 * time.Hour},
		Lease:            testLease,
		NoPartitions:     true,
		LateAcks:         true,
		DropsInSilence:   true,
		NilValueIsEmpty:  true,
		HeadersByKey:     true, // nats.go keeps headers in a map, and writes them as it comes
		KeepsRuns:        true,
		Operations:       true,
		StopHandsOver:    true,
		OrdersOnDemand:   true,
		SideBySide:       true, // each case has a server of its own
		DropsRepeatedIDs: true,
		Goroutines:       []string{"broker/natsbroker."},
		Cannot: map[string]string{
			"Revoke":        "a claim is a subscription to a consumer; nobody takes it away",
			"Steal":         "a claim is a subscription to a consumer; nobody takes it away",
			"Bounce":        "a claim is a subscription to a consumer; nobody takes it away",
			"Floors":        "messages are acked one by one; there is no committed offset of ours",
			"FailSettles":   "an ack has no answer that could be a failure; lost ones are what Cut is for",
			"ForgetSettles": "a server forgets acks only when it is killed, and not surely; see TestServerKilled",
			"Undecodable":   "there is nothing that NATS cannot decode",
		},
	}
}

// orderedHarness opens every process with Options.Ordered: one at a time is pinned.
func orderedHarness() brokertest.Harness {
	h := harness(embedded)
	h.Ordered, h.Only = true, orderedCases
	return h
}

// orderedCases are those that an order may change. Not among them are those that want both of two processes to get messages, or a
// claim before there is a message; what is published, and what headers and payloads become, is no different.
var orderedCases = []string{
	"HandedOutOnce", "AtLeastOnce", "Order", "SettleOnce", "GiveBack", "Attempts", "RedeliveredWhileOut",
	"EventsInOrder", "ObserveCallsBack", "OrderAfterKill", "OrderAfterFreeze", "OrderAfterClose",
	"StopKeepsWhatIsOut", "StopInOrder", "CloseGivesBack", "CloseWaits", "SettleRacesClose", "BudgetMessages", "BudgetUsedUpExactly",
	"PauseInOrder",
	"TrimmedUnderway", "Recreated", "CutBoth", "ShortCut", "Killed", "Frozen", "DownBeforeOpen", "DownLater", "Idle", "Lag", "Storm",
	"NoGoroutineLeft", "NoBufferLeft",
}

// conformance is one case's broker.
type conformance struct {
	place
	admin  *admin
	cfg    natsbroker.Config
	delay  time.Duration
	links  []*proxy
	pulls  atomic.Int64
	pull   atomic.Value // where the last one wants its answers
	beats  atomic.Int64
	topics []string
}

func newSystem(t testing.TB, p place, s brokertest.Setup) *brokertest.System {
	c := &conformance{place: p, admin: adminOf(t, p.url)}
	for i := range s.Topics {
		c.topics = append(c.topics, fmt.Sprintf("s.topic%d", i))
	}
	c.cfg = config(p.url)
	c.cfg.AckWait, c.cfg.Heartbeat = testLease, testLease/4
	if s.Lease != 0 {
		c.cfg.AckWait, c.cfg.Heartbeat = s.Lease, s.Lease/4
	}
	c.cfg.Recreate, c.cfg.Share = true, s.Shares
	c.cfg.CreateStream = &jetstream.StreamConfig{Subjects: []string{"s.>"}}
	c.admin.stream()
	c.count(t)
	sys := &brokertest.System{
		Topics:          c.topics,
		Join:            c.join,
		Produce:         c.produce,
		Unsettled:       c.unsettled,
		Pulls:           func(testing.TB) int64 { return c.pulls.Load() },
		Heartbeats:      func(testing.TB) int64 { return c.beats.Load() },
		Publisher:       func(t testing.TB) broker.Publisher { return newPublisher(t, p.url) },
		MaxMessageBytes: 1 << 20,
		Down:            func(testing.TB) { p.down() },
		Up:              func(testing.TB) { p.up() },
		Redeliver:       c.redeliver,
		SlowSettles:     c.slow,
		Trim:            c.trim,
		Recreate:        c.recreate,
		Misconfigured:   c.misconfigured,
	}
	return sys
}

// count listens to what processes send to the server.
func (c *conformance) count(t testing.TB) {
	t.Helper()
	_, err := c.admin.nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT.>", func(m *nats.Msg) {
		c.pull.Store(m.Reply)
		c.pulls.Add(1)
	})
	if err == nil {
		_, err = c.admin.nc.Subscribe("$JS.ACK.>", func(m *nats.Msg) {
			if string(m.Data) == "+WPI" {
				c.beats.Add(1)
			}
		})
	}
	if err == nil {
		err = c.admin.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (c *conformance) join(t testing.TB) *brokertest.Process {
	p := startProxy(t, c.port)
	p.delay(c.delay)
	c.links = append(c.links, p)
	cfg := c.cfg
	cfg.URLs = []string{p.url()}
	src, err := natsbroker.NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &brokertest.Process{
		Source: src,
		Kill: func() {
			p.shut()
			past, cancel := context.WithCancel(context.Background())
			cancel()
			_ = src.Close(past)
		},
		Freeze: func() { p.cut(toServer, toClient) },
		Thaw:   p.heal,
		Cut: func(d brokertest.Direction) {
			if d != brokertest.FromBroker {
				p.cut(toServer)
			}
			if d != brokertest.ToBroker {
				p.cut(toClient)
			}
		},
		Heal: func() { // what was held is lost, and not late
			p.drop()
			p.heal()
		},
		EndReceive: func() { c.refusePull(t) },
	}
}

// refusePull answers the pull that is out, in the server's name, with what no other pull would cure.
func (c *conformance) refusePull(t testing.TB) {
	eventually(t, "a pull is out", func() bool { return c.pull.Load() != nil })
	reply, _ := c.pull.Load().(string)
	no := nats.NewMsg(reply)
	no.Header.Set("Status", "400")
	no.Header.Set("Description", "Bad Request")
	if err := c.admin.nc.PublishMsg(no); err != nil {
		t.Error(err)
	}
}

// misconfigured makes a source of a stream that is not there, and that it shall not wait for.
func (c *conformance) misconfigured(t testing.TB) broker.Source {
	cfg := c.cfg
	cfg.Stream, cfg.CreateStream, cfg.Missing = "MISSING", nil, "stop"
	src, err := natsbroker.NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func (c *conformance) produce(t testing.TB, _ int, ms ...broker.Outgoing) {
	t.Helper()
	p, err := natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: c.cfg.Connection})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := errors.Join(p.Publish(ctx, ms), p.Close(ctx)); err != nil { // a case that was starved is run again in this process
		t.Fatal(err)
	}
}

func (c *conformance) unsettled(t testing.TB) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cons, err := c.admin.js.Consumer(ctx, "S", "c")
	if err == nil {
		i := cons.CachedInfo()
		return int64(i.NumPending) + int64(i.NumAckPending)
	}
	st, serr := c.admin.js.Stream(ctx, "S")
	if serr != nil {
		t.Fatalf("%v, %v", err, serr)
	}
	return int64(st.CachedInfo().State.Msgs)
}

// redeliver naks in the name of whoever has the message: JetStream does not fence.
func (c *conformance) redeliver(t testing.TB, m *broker.Message) {
	t.Helper()
	i := c.admin.info()
	reply := fmt.Sprintf("$JS.ACK.S.c.%d.%d.%d.%d.0", m.Attempt, m.Offset, i.Delivered.Consumer, m.Nanos)
	if err := c.admin.nc.Publish(reply, []byte("-NAK")); err != nil {
		t.Fatal(err)
	}
	if err := c.admin.nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func (c *conformance) slow(_ testing.TB, d time.Duration) {
	c.delay = d
	for _, p := range c.links {
		p.delay(d)
	}
}

// trim does what retention does: a limit that is lower for a moment.
func (c *conformance) trim(t testing.TB, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := c.admin.js.Stream(ctx, "S")
	if err != nil {
		t.Fatal(err)
	}
	sc, state := st.CachedInfo().Config, st.CachedInfo().State
	limited := sc
	limited.MaxMsgs = int64(state.Msgs) - int64(n)
	for _, sc := range []jetstream.StreamConfig{limited, sc} {
		if _, err := c.admin.js.UpdateStream(ctx, sc); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *conformance) recreate(t testing.TB, _ string) {
	t.Helper()
	if err := c.admin.js.DeleteStream(context.Background(), "S"); err != nil && !strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}
	_, err := c.admin.js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if err != nil && !strings.Contains(err.Error(), "already in use") { // the source may be faster
		c.admin.stream()
	}
}
