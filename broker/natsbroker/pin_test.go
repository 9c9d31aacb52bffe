package natsbroker_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

func inOrder(o *broker.Options) { o.Ordered = true }

// pinConfig is one with short times. They are the least with which a busy machine keeps its pins.
func pinConfig(url string) natsbroker.Config {
	cfg := config(url)
	cfg.AckWait, cfg.RevokeWait = 2*time.Second, 2*time.Second
	return cfg
}

// Of two processes one gets all messages, in order, and the other one what it leaves when it is closed.
func TestOnePinnedAtATime(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	first := open(t, pinConfig(ts.url()), inOrder)
	if !first.traits.Ordered {
		t.Error("Traits.Ordered is not set")
	}
	cc := a.info().Config
	if len(cc.PriorityGroups) != 1 || cc.PinnedTTL != 2500*time.Millisecond {
		t.Fatalf("the consumer was created with groups %v, timeout %v", cc.PriorityGroups, cc.PinnedTTL)
	}
	a.publish(1, 20)
	ms := receive(t, first, 20)
	for i, m := range ms {
		if m.Offset != int64(i+1) {
			t.Fatalf("message %d has offset %d", i, m.Offset)
		}
		if n := m.Headers.Len(); n != 0 {
			t.Fatalf("message %d has %d headers", i, n)
		}
	}
	second := open(t, pinConfig(ts.url()), inOrder)
	d := drainAll(second)
	ack(t, first, ms[:5]...)
	a.publish(21, 30)
	more := receive(t, first, 10)
	if n, _ := d.seen(); n != 0 {
		t.Errorf("%d messages came to the process that stands by", n)
	}
	ack(t, first, more[:2]...)
	closeSource(t, first)
	eventually(t, "the other gets the rest", func() bool { n, _ := d.seen(); return n == 23 })
	d.stop(t)
	a.settled()
	if n := len(second.events.of(broker.Down)); n > 0 {
		t.Errorf("%d Down events of the process that stood by", n)
	}
}

// A process that stands by is idle, not wedged: no alarm, and a lag that is not its own.
func TestStandingByIsQuiet(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	cfg := pinConfig(ts.url())
	cfg.Heartbeat, cfg.AckWait = 100*time.Millisecond, 4*time.Second // a busy machine stands still for a while
	first := open(t, cfg, inOrder)
	a.publish(1, 300)
	ms := receive(t, first, 100) // its budget
	second := open(t, cfg, inOrder)
	for _, l := range []struct {
		of *opened
		is func(broker.Lag) bool
	}{
		{first, func(l broker.Lag) bool { return l.Waiting >= 100 && l.Unsettled == 300 && !l.Group }},
		{second, func(l broker.Lag) bool { return l.Waiting == 0 && l.Unsettled == 0 && !l.Group && !l.At.IsZero() }},
	} {
		eventually(t, "the lag is that of whoever is pinned", func() bool { return l.is(l.of.Lag()) })
	}
	pass(t, 3*cfg.AckWait/2, "the server would have taken a pin that is not renewed")
	for _, k := range []broker.Kind{broker.Down, broker.Warning, broker.Assigned, broker.Gap} {
		for _, e := range second.events.of(k) {
			if k != broker.Down || strings.Contains(e.Err.Error(), "heartbeat") { // else the machine stood still
				t.Errorf("the process that stands by told %v: %v", k, e.Err)
			}
		}
	}
	if es := first.events.of(broker.Ended); len(es) > 0 {
		t.Errorf("a budget that is used up cost the pin: %v", es[0].Err)
	}
	ack(t, first, ms...)
}

// A paused process does not keep the others waiting, and goes on when its turn comes again.
func TestPausedLetsOthersGoOn(t *testing.T) {
	ts, a := serveStream(t)
	cfg := pinConfig(ts.url())
	cfg.AckWait = time.Hour // nothing goes on by its timeout
	first := open(t, cfg, inOrder)
	a.publish(1, 10)
	ack(t, first, receive(t, first, 10)...)
	if err := first.Pause(); err != nil {
		t.Fatal(err)
	}
	second := open(t, cfg, inOrder)
	a.publish(11, 20)
	ack(t, second, receive(t, second, 10)...)
	if err := first.Resume(); err != nil {
		t.Fatal(err)
	}
	closeSource(t, second)
	a.publish(21, 30)
	ack(t, first, receive(t, first, 10)...)
	a.settled()
	if n := len(first.events.of(broker.Assigned)); n != 2 {
		t.Errorf("%d claims, want 2", n)
	}
}

// A durable from before keeps its settings; what that costs is said, field by field.
func TestDurableWithoutAGroup(t *testing.T) {
	ts, a := serveStream(t)
	closeSource(t, open(t, pinConfig(ts.url())))
	s := open(t, pinConfig(ts.url()), inOrder)
	if s.traits.Ordered {
		t.Error("Traits.Ordered is set")
	}
	eventually(t, "it is said", func() bool {
		ws := s.events.of(broker.Warning)
		return len(ws) == 1 && strings.Contains(ws[0].Err.Error(), "it has no priority group")
	})
	a.publish(1, 5)
	ack(t, s, receive(t, s, 5)...)
	a.settled()
}

// Who follows that advice while processes run in an order ends none of them: what is out is finished, and then one at a time goes
// on.
func TestDurableGetsAGroupUnderway(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	cfg := pinConfig(ts.url())
	closeSource(t, open(t, cfg))
	first, second := open(t, cfg, inOrder), open(t, cfg, inOrder)
	a.publish(1, 10)
	one, other := drainAll(first), drainAll(second)
	handled := func() int {
		n, _ := one.seen()
		m, _ := other.seen()
		return n + m
	}
	eventually(t, "all is handled", func() bool { return handled() == 10 })
	cc := a.info().Config
	cc.PriorityPolicy, cc.PriorityGroups, cc.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"longshore"}, 5*cfg.AckWait/4
	if _, err := a.js.UpdateConsumer(context.Background(), "S", cc); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*opened{first, second} {
		eventually(t, "its turn is over", func() bool { return len(s.events.of(broker.Ended)) == 1 })
	}
	a.publish(11, 30)
	eventually(t, "all that follows is handled", func() bool { return handled() == 30 })
	if n := len(first.events.of(broker.Assigned)) + len(second.events.of(broker.Assigned)); n != 3 {
		t.Errorf("%d claims, want one of each before, and one after", n)
	}
	one.stop(t)
	other.stop(t)
	a.settled()
}

// The group of a durable is given another name while a process runs in it: it goes on in that one.
func TestGroupIsRenamedUnderway(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	s := open(t, pinConfig(ts.url()), inOrder, func(o *broker.Options) { o.Budget.Messages = 2 }) // it asks again and again
	a.publish(1, 5)
	all := drainAll(s)
	handled := func(want int) func() bool {
		return func() bool { n, _ := all.seen(); return n == want }
	}
	eventually(t, "all is handled", handled(5))
	a.change(func(cc *jetstream.ConsumerConfig) { cc.PriorityGroups = []string{"another"} })
	a.publish(6, 10)
	eventually(t, "all that follows is handled", handled(10))
	all.stop(t)
	a.settled()
}

// Such a durable gets the group by an update, as docs/configuration.md says, and loses it by one, and goes on where it is.
func TestDurableGetsAGroup(t *testing.T) {
	ts, a := serveStream(t)
	cfg := pinConfig(ts.url())
	a.publish(1, 5)
	s := open(t, cfg)
	ack(t, s, receive(t, s, 5)...)
	closeSource(t, s)
	cc := a.info().Config
	cc.PriorityPolicy, cc.PriorityGroups, cc.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"longshore"}, 2500*time.Millisecond
	if _, err := a.js.UpdateConsumer(context.Background(), "S", cc); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg, inOrder)
	if !s.traits.Ordered {
		t.Error("Traits.Ordered is not set")
	}
	a.publish(6, 10)
	ack(t, s, receive(t, s, 5)...)
	closeSource(t, s)
	if ws := s.events.of(broker.Warning); len(ws) > 0 {
		t.Errorf("warnings: %v", ws[0].Err)
	}
	cc.PriorityPolicy, cc.PriorityGroups, cc.PinnedTTL = jetstream.PriorityPolicyNone, nil, 0
	if _, err := a.js.UpdateConsumer(context.Background(), "S", cc); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	a.publish(11, 15)
	if ms := receive(t, s, 5); ms[0].Offset != 11 {
		t.Errorf("it went on at %d", ms[0].Offset)
	} else {
		ack(t, s, ms...)
	}
	a.settled()
}

// With a group but no order the processes would be pinned for nothing, and one that pulls without it would break the order of the
// others.
func TestDurableWithAGroupIsForAnOrder(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	ts.admin().stream()
	cfg := pinConfig(ts.url())
	cfg.AckWait = time.Second
	closeSource(t, open(t, cfg, inOrder))
	_, err := tryOpen(t, cfg)
	if err == nil || !strings.Contains(err.Error(), "it has the priority group longshore") {
		t.Errorf("without an order: %v", err)
	}
	cfg.AckWait = 2 * time.Second
	s := open(t, cfg, inOrder)
	var said []string
	eventually(t, "the difference is said", func() bool {
		said = nil
		for _, e := range s.events.of(broker.Warning) {
			said = append(said, e.Err.Error())
		}
		return len(said) == 1
	})
	if all := strings.Join(said, "\n"); !strings.Contains(all, "ack_wait is 1s there and 2s here") {
		t.Errorf("warnings:\n%s", all)
	}
	if _, err := ts.admin().js.UpdateConsumer(context.Background(), "S",
		jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy,
			PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	closeSource(t, s)
	if _, err := tryOpen(t, cfg, inOrder); err == nil || !strings.Contains(err.Error(), "neither none nor pinned_client") {
		t.Errorf("with another policy: %v", err)
	}
}

// Set while a process runs, a policy that is not supported ends it, for its reason: each of its pulls would be refused, for ever.
func TestOtherPolicyMadeLater(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]jetstream.PriorityPolicy{
		"overflow": jetstream.PriorityPolicyOverflow, "prioritized": jetstream.PriorityPolicyPrioritized,
	} {
		t.Run(name, func(t *testing.T) {
			ts, a := serveStream(t)
			s := open(t, config(ts.url()))
			cc := a.info().Config
			cc.PriorityPolicy, cc.PriorityGroups = policy, []string{"x"}
			if _, err := a.js.UpdateConsumer(t.Context(), "S", cc); err != nil {
				t.Fatal(err)
			}
			got := make(chan error, 1)
			go func() {
				_, err := s.Receive(make([]broker.Message, 1))
				got <- err
			}()
			select {
			case err := <-got:
				if err == nil || !strings.Contains(err.Error(), "neither none nor pinned_client") {
					t.Errorf("Receive returned %v, want what is wrong with the consumer", err)
				}
			case <-time.After(patience):
				t.Errorf("it stands still, and says nothing")
			}
		})
	}
}

// tryOpen returns what Open says.
func tryOpen(t *testing.T, cfg natsbroker.Config, change ...func(*broker.Options)) (broker.Traits, error) {
	t.Helper()
	s, err := natsbroker.NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSource(t, s) })
	o := broker.Options{Budget: broker.Budget{Messages: 100, Bytes: 1 << 20}, Observe: func(broker.Event) {}}
	for _, c := range change {
		c(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.Open(ctx, o)
}

// A server that cannot pin would make a consumer without the group and say nothing. It is refused by its version, and nothing is
// made.
func TestOldServerIsRefused(t *testing.T) {
	ts, a := serveStream(t)
	_, err := tryOpen(t, pinConfig(pretender(t, ts, "2.10.9")), inOrder)
	if err == nil || !strings.Contains(err.Error(), "the server is 2.10.9") || !strings.Contains(err.Error(), "nats-server 2.11") {
		t.Errorf("Open says %v", err)
	}
	if _, err := a.js.Consumer(context.Background(), "S", "c"); err == nil {
		t.Error("the consumer was created")
	}
	if _, err := tryOpen(t, pinConfig(pretender(t, ts, "2.10.9"))); err != nil {
		t.Errorf("without an order: %v", err)
	}
}

// pretender is a way to the server on which it says another version of itself.
func pretender(t *testing.T, ts *testServer, version string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open []io.Closer
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", strings.TrimPrefix(ts.url(), "nats://"))
			if err != nil {
				_ = c.Close()
				return
			}
			open = append(open, c, s)
			go func() { _, _ = io.Copy(s, c) }()
			go func() {
				buf := make([]byte, 32<<10)
				for {
					n, err := s.Read(buf)
					if err != nil {
						return
					}
					said := bytes.Replace(buf[:n], []byte(`"version":"`+server.VERSION+`"`), []byte(`"version":"`+version+`"`), 1)
					if _, err := c.Write(said); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		for _, c := range open {
			_ = c.Close()
		}
	})
	return "nats://" + l.Addr().String()
}

// Who was never pinned and stops, or pauses, leaves a request with the server. It must not be pinned for nobody: the next would
// wait until that is over.
func TestNobodyIsPinned(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, s *opened){
		"close": func(t *testing.T, s *opened) { closeSource(t, s) },
		"pause": func(t *testing.T, s *opened) {
			if err := s.Pause(); err != nil {
				t.Fatal(err)
			}
			pass(t, 300*time.Millisecond, "it has left its inbox")
		},
		"stop": func(t *testing.T, s *opened) {
			s.Stop()
			pass(t, 300*time.Millisecond, "it has left its inbox")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			cfg := pinConfig(ts.url())
			// at a heartbeat, and a poll, the server would look, too
			cfg.AckWait, cfg.Heartbeat, cfg.Poll = time.Hour, 10*time.Second, time.Hour
			s := open(t, cfg, inOrder)
			eventually(t, "it waits for its turn", func() bool { return a.info().NumWaiting > 0 })
			leave(t, s)
			a.publish(1, 5)
			next := open(t, cfg, inOrder)
			ack(t, next, receive(t, next, 5)...)
		})
	}
}

// A server with leaf nodes keeps a request for two seconds, whoever listens: its client may be beyond one of them.
func TestNobodyIsPinnedBesideALeafNode(t *testing.T) {
	t.Parallel()
	ts := startServer(t, func(o *server.Options) { o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", freePort(t) })
	a := ts.admin()
	a.stream()
	cfg := pinConfig(ts.url())
	cfg.AckWait, cfg.Heartbeat, cfg.Poll = time.Hour, 10*time.Second, time.Hour
	s := open(t, cfg, inOrder)
	eventually(t, "it waits for its turn", func() bool { return a.info().NumWaiting > 0 })
	closeSource(t, s)
	a.publish(1, 5)
	next := open(t, cfg, inOrder)
	ack(t, next, receive(t, next, 5)...)
}

// The server may have pinned it just before, with a delivery that is on its way.
func TestNobodyIsPinnedJustBeforeClose(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	cfg := pinConfig(p.url())
	cfg.AckWait, cfg.Poll = time.Hour, time.Hour
	s := open(t, cfg, inOrder)
	eventually(t, "it waits for its turn", func() bool { return a.info().NumWaiting > 0 })
	p.cut(toClient)
	a.publish(1, 5)
	eventually(t, "it is pinned", func() bool { return a.info().NumAckPending == 1 })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closeSource(t, s)
	}()
	pass(t, 2500*time.Millisecond, "its claim has ended")
	p.heal()
	<-closed
	cfg.URLs = []string{ts.url()}
	next := open(t, cfg, inOrder)
	ack(t, next, receive(t, next, 5)...)
}

// Whoever may publish can write headers that nobody can read, and the pin's id stands among them. Such a message is handled as
// any other, with none, and so are those behind it.
func TestPinnedDespiteHeadersThatCannotBeRead(t *testing.T) {
	for name, messages := range map[string]string{"first": "b1234", "later": "12b34", "all": "bbbbb"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			s := open(t, pinConfig(ts.url()), inOrder)
			for i, c := range messages {
				if c == 'b' {
					publishRaw(t, ts, "NATS/1.0\r\nno colon\r\n\r\n", string(c))
				} else if _, err := a.js.Publish(t.Context(), "s.a", []byte{byte(c)}); err != nil {
					t.Fatal(err)
				}
				ms := receive(t, s, 1)
				if m := ms[0]; m.Offset != int64(i+1) || string(m.Value) != string(c) {
					t.Errorf("message %d came as %d, %q", i+1, m.Offset, m.Value)
				}
				ack(t, s, ms...)
			}
			a.settled()
			if es := s.events.of(broker.Ended); len(es) > 0 {
				t.Errorf("a claim ended: %v", es[0].Err)
			}
		})
	}
}

// publishRaw publishes a message with a block of headers as it is.
func publishRaw(t *testing.T, ts *testServer, headers, value string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(ts.url(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	fmt.Fprintf(c, "CONNECT {\"headers\":true,\"verbose\":false}\r\nHPUB s.a %d %d\r\n%s%s\r\nPING\r\n",
		len(headers), len(headers)+len(value), headers, value)
	for in := bufio.NewScanner(c); in.Scan() && in.Text() != "PONG"; {
		if strings.HasPrefix(in.Text(), "-ERR") {
			t.Fatal(in.Text())
		}
	}
}
