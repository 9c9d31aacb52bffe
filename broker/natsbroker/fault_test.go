package natsbroker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// drainer receives and acks in the background and counts how often each offset was handed out.
type drainer struct {
	s    broker.Source
	mu   sync.Mutex
	runs map[int64]int
	err  error
	done chan struct{}
}

func drainAll(s broker.Source) *drainer {
	d := &drainer{s: s, runs: map[int64]int{}, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		dst := make([]broker.Message, 16)
		for {
			n, err := s.Receive(dst)
			d.mu.Lock()
			d.err = err
			for _, m := range dst[:n] {
				d.runs[m.Offset]++
			}
			d.mu.Unlock()
			if err != nil {
				return
			}
			for _, m := range dst[:n] {
				_ = s.Ack(m.Claim, []uint64{m.Token})
			}
		}
	}()
	return d
}

// got says whether an offset was handed out.
func (d *drainer) got(offset int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs[offset] > 0
}

// seen is how many offsets were handed out, and how many hand-outs were one too many.
func (d *drainer) seen() (distinct, extra int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.runs {
		extra += n - 1
	}
	return len(d.runs), extra
}

func (d *drainer) has(t *testing.T, n int) {
	t.Helper()
	eventually(t, "all messages are handed out", func() bool { got, _ := d.seen(); return got == n })
}

func (d *drainer) stop(t *testing.T) {
	t.Helper()
	d.s.Stop()
	select {
	case <-d.done:
	case <-time.After(patience):
		t.Fatal("Receive does not end after Stop")
	}
}

// f36: a handler longer than AckWait, and what waits behind it, run once.
func TestLongHandlersAreExtended(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 40)
	cfg := config(ts.url())
	cfg.AckWait = 3 * time.Second // a busy machine stands still for a while
	s := open(t, cfg)
	out := receive(t, s, 10) // 30 stay in the adapter
	eventually(t, "all are delivered", func() bool { return a.info().NumAckPending == 40 })
	pass(t, 2*cfg.AckWait, "two ack waits pass")
	if n := a.info().NumRedelivered; n != 0 {
		t.Fatalf("%d messages were delivered again", n)
	}
	ack(t, s, out...)
	for _, m := range receive(t, s, 30) {
		if m.Attempt != 1 {
			t.Fatalf("message %d has attempt %d", m.Offset, m.Attempt)
		}
		ack(t, s, m)
	}
	a.settled()
	if i := a.info(); i.Delivered.Consumer != 40 {
		t.Fatalf("%d deliveries of 40 messages", i.Delivered.Consumer)
	}
}

// A message that the server delivers again while it is still out here is not handed out, and its ack settles it.
func TestRedeliveryWhileOut(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 20)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.AckWait = 300 * time.Millisecond
	cfg.Heartbeat = 10 * time.Second // the cut is not noticed by missing heartbeats
	s := open(t, cfg)
	out := receive(t, s, 20)
	p.cut(toServer) // extensions do not arrive; deliveries do
	eventually(t, "the server gives them up", func() bool { return a.info().NumRedelivered > 0 })
	eventually(t, "some are delivered again", func() bool { return a.info().Delivered.Consumer > 20 })
	p.heal()
	a.publish(21, 21)
	if m := receive(t, s, 1)[0]; m.Offset != 21 {
		t.Fatalf("message %d was handed out twice", m.Offset)
	} else {
		ack(t, s, m)
	}
	lost := 0
	for _, m := range out {
		if err := s.Ack(m.Claim, []uint64{m.Token}); errors.Is(err, broker.ErrLost) {
			lost++ // allowed: its lease had run out
		} else if err != nil {
			t.Fatalf("Ack: %v", err)
		}
	}
	a.settled()
	t.Logf("%d of 20 acks were late", lost)
}

// f17: acks lost on the way, deliveries go on: finished work comes again and is acked again, not handled.
func TestLostAcksAreSentAgain(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"held", "lost with the connection"} {
		t.Run(how, func(t *testing.T) {
			ts, a := serveStream(t)
			a.publish(1, 100)
			p := startProxy(t, ts.opts.Port)
			cfg := config(p.url())
			cfg.AckWait = time.Second // less ends before the acks on a busy machine
			cfg.Heartbeat = 10 * time.Second
			s := open(t, cfg, func(o *broker.Options) { o.Budget.Messages = 1000 }) // pulls wait at the server
			out := receive(t, s, 100)
			p.cut(toServer)
			ack(t, s, out...)
			eventually(t, "the server delivers them again", func() bool { return a.info().NumRedelivered > 0 })
			if how != "held" {
				p.drop()
			}
			p.heal()
			d := drainAll(s)
			a.settled()
			d.stop(t)
			if n, _ := d.seen(); n != 0 {
				t.Fatalf("%d finished messages were handed out again", n)
			}
		})
	}
}

// f10, f12: the server goes away and comes back, with messages out, buffered and acked.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 300)
	cfg := config(ts.url())
	cfg.AckWait = time.Second
	s := open(t, cfg)
	out := receive(t, s, 50)
	d := drainAll(s)
	eventually(t, "it runs", func() bool { n, _ := d.seen(); return n > 50 })
	for range 3 {
		downs, ups := len(s.events.of(broker.Down)), len(s.events.of(broker.Up))
		ts.down()
		eventually(t, "Down is told", func() bool { return len(s.events.of(broker.Down)) > downs })
		ts.up()
		eventually(t, "Up is told", func() bool { return len(s.events.of(broker.Up)) > ups })
	}
	a.again()
	a.publish(301, 400)
	d.has(t, 350)
	for _, m := range out {
		if err := s.Ack(m.Claim, []uint64{m.Token}); err != nil && !errors.Is(err, broker.ErrLost) {
			t.Fatal(err)
		}
	}
	a.settled()
	d.stop(t)
	if _, extra := d.seen(); extra > 0 {
		t.Errorf("%d messages were handed out twice", extra)
	}
}

// A server that is killed forgets deliveries and acks of its last second, and counts deliveries from 1 again.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	p := startServerProcess(t)
	a := adminOf(t, p.url())
	a.stream()
	a.publish(1, 400)
	cfg := config(p.url())
	cfg.AckWait = time.Second
	s := open(t, cfg)
	d := drainAll(s)
	d.has(t, 400)
	p.kill()
	p.up()
	a.again()
	a.publish(401, 500)
	d.has(t, 500)
	a.settled()
	d.stop(t)
	if _, extra := d.seen(); extra > 0 {
		t.Errorf("%d messages were handed out twice", extra)
	}
}

// f14, f15: connections are reset again and again.
func TestConnectionsReset(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.AckWait = time.Second // what was on its way when a connection died comes again after it
	s := open(t, cfg)
	d := drainAll(s)
	for i := range 10 {
		a.publish(i*50+1, i*50+50)
		p.drop()
	}
	d.has(t, 500)
	a.settled()
	d.stop(t)
}

// f16, f19: nothing comes from the server, and the socket stays open. It is noticed by the missing heartbeat; when nothing comes
// at all, the connection is replaced.
func TestHalfOpenConnection(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.AckWait = 600 * time.Millisecond
	cfg.Heartbeat = 200 * time.Millisecond
	s := open(t, cfg)
	d := drainAll(s)
	a.publish(1, 10)
	d.has(t, 10)
	p.cut(toServer, toClient)
	a.publish(11, 20)
	eventually(t, "Down is told", func() bool { return len(s.events.of(broker.Down)) > 0 })
	p.mu.Lock()
	stalled := len(p.conns)
	p.mu.Unlock()
	eventually(t, "a new connection is tried", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.conns) > stalled
	})
	p.heal()
	d.has(t, 20)
	a.settled()
	d.stop(t)
}

// f08: a holder whose lease ran out neither naks nor extends: it would take the messages from whoever has them now.
func TestNoGiveBackByAnExpiredLease(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 20)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.AckWait = 1500 * time.Millisecond // a busy machine stands still for a while
	zombie := open(t, cfg)
	out := receive(t, zombie, 10)
	eventually(t, "all are delivered", func() bool { return a.info().NumAckPending == 20 })
	p.cut(toServer, toClient)

	cfg.URLs = []string{ts.url()}
	other := open(t, cfg)
	taken := receive(t, other, 20)
	a.change(func(cc *jetstream.ConsumerConfig) { cc.AckWait = time.Hour }) // it keeps them, however busy the machine is
	for _, m := range out[:5] {
		if err := zombie.Nack(m.Claim, []broker.Back{{Token: m.Token}}); !errors.Is(err, broker.ErrLost) {
			t.Fatalf("Nack by an expired lease: %v", err)
		}
	}
	zombie.Stop() // what it has buffered does not go back either
	p.heal()
	for _, m := range out[5:] {
		if err := zombie.Ack(m.Claim, []uint64{m.Token}); err != nil && !errors.Is(err, broker.ErrLost) {
			t.Fatalf("late Ack: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := zombie.Close(ctx); err != nil {
		t.Fatal(err)
	}
	before := a.info().Delivered.Consumer
	pass(t, time.Second, "what it said has come")
	if now := a.info().Delivered.Consumer; now != before {
		t.Errorf("%d messages were taken from the process that has them", now-before)
	}
	for _, m := range taken {
		if err := other.Ack(m.Claim, []uint64{m.Token}); err != nil {
			t.Fatal(err)
		}
	}
	a.settled()
}

// MaxHold: after it a message is extended no more, and another gets it.
func TestMaxHold(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 1)
	cfg := config(ts.url())
	cfg.AckWait, cfg.MaxHold = 200*time.Millisecond, 300*time.Millisecond
	s := open(t, cfg)
	m := receive(t, s, 1)[0]
	eventually(t, "the server delivers it again", func() bool { return a.info().NumRedelivered > 0 })
	_ = s.Ack(m.Claim, []uint64{m.Token})
	a.settled()
}
