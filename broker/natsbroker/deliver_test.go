package natsbroker_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// Where a consumer begins that is made in a stream which has messages already, and gets another one then.
func TestDeliver(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 3)
	third := must(must(a.js.Stream(t.Context(), "S")).GetMsg(t.Context(), 3)).Time
	const newest = 0
	last := int64(3)
	for name, c := range map[string]struct {
		set  func(*natsbroker.Config)
		want int64
	}{
		"by default":    {func(*natsbroker.Config) {}, 1},
		"all":           {func(c *natsbroker.Config) { c.Deliver = jetstream.DeliverAllPolicy }, 1},
		"only new ones": {func(c *natsbroker.Config) { c.Deliver = jetstream.DeliverNewPolicy }, newest},
		"by a sequence": {func(c *natsbroker.Config) { c.Deliver, c.StartSequence = jetstream.DeliverByStartSequencePolicy, 2 }, 2},
		"by a time":     {func(c *natsbroker.Config) { c.Deliver, c.StartTime = jetstream.DeliverByStartTimePolicy, third }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(ts.url())
			cfg.Consumer = strings.ReplaceAll(name, " ", "-")
			c.set(&cfg)
			s := open(t, cfg)
			a.publish(4, 4)
			last++
			want := c.want
			if want == newest {
				want = last
			}
			if m := receive(t, s, 1)[0]; m.Offset != want {
				t.Errorf("the first is %d, want %d", m.Offset, want)
			}
		})
	}
}

// waiting is a source that waits for its stream, and is to begin with what is new.
func waiting(t *testing.T, url string) (s *natsbroker.Source, opened chan error) {
	t.Helper()
	cfg := config(url)
	cfg.Deliver = jetstream.DeliverNewPolicy
	cfg.ReconnectWait, cfg.MaxReconnectWait = time.Second, time.Second // it looks seldom
	s, opened = must(natsbroker.NewSource(cfg)), make(chan error, 1)
	t.Cleanup(func() { closeSource(t, s) })
	ev := &events{}
	go func() {
		_, err := s.Open(t.Context(), broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: ev.observe})
		opened <- err
	}()
	eventually(t, "it waits for the stream", func() bool { return len(ev.of(broker.Warning)) > 0 })
	return s, opened
}

// begins wants a source to begin at an offset, with one message more there once it is open.
func begins(t *testing.T, a *admin, s *natsbroker.Source, opened <-chan error, want int64) {
	t.Helper()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	a.publish(4, 4)
	if m := receive(t, s, 1)[0]; m.Offset != want {
		t.Errorf("the first is %d, want %d", m.Offset, want)
	}
}

// A stream that is made while it is waited for has nothing from before: what is written to it before it is found is new.
func TestDeliverNewOfAStreamThatIsWaitedFor(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	s, opened := waiting(t, ts.url())
	a := ts.admin()
	a.stream()
	a.publish(1, 3)
	begins(t, a, s, opened, 1)
}

// One that was there long ago, and was away, has.
func TestDeliverNewOfAStreamThatWasAway(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 3)
	dir, aside := ts.streamDir(), ts.opts.StoreDir+"-aside"
	t.Cleanup(func() { _ = os.RemoveAll(aside) })
	move := func(from, to string) {
		ts.down()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		ts.up()
		a.again()
	}
	pass(t, 2*time.Second, "the stream is older than the wait for it")
	move(dir, aside)
	s, opened := waiting(t, ts.url())
	move(aside, dir)
	begins(t, a, s, opened, 4)
}

// Nor has one that is made anew while it is consumed.
func TestDeliverNewOfAStreamMadeAnew(t *testing.T) {
	t.Parallel()
	a, cfg := recreating(t)
	cfg.Deliver = jetstream.DeliverNewPolicy
	s := open(t, cfg)
	d := drainAll(s)
	a.publish(1, 3)
	d.has(t, 3)
	a.settled()
	if err := a.js.DeleteStream(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	a.stream(func(sc *jetstream.StreamConfig) { sc.FirstSeq = 100 })
	a.publish(1, 3)
	eventually(t, "a new claim begins", func() bool { return len(s.events.of(broker.Assigned)) == 2 })
	a.publish(4, 4)
	d.has(t, 3+4)
	d.stop(t)
}
