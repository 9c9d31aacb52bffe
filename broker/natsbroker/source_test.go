package natsbroker_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// f13: no server at first. Open tries on with Down events until ctx ends; a server that comes is found.
func TestOpenWithoutServer(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 1)
	ts.down()
	o := someOptions()
	s, _ := natsbroker.NewSource(config(ts.url()))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ev := &events{}
	o.Observe = func(e broker.Event) {
		ev.observe(e)
		if e.Kind == broker.Down {
			cancel()
		}
	}
	if _, err := s.Open(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("Open: %v", err)
	}
	closeSource(t, s)
	if n := len(ev.of(broker.Up)); n != 0 {
		t.Fatal("Up without a server")
	}

	ev = &events{}
	o.Observe = ev.observe
	s, _ = natsbroker.NewSource(config(ts.url()))
	defer closeSource(t, s)
	opened := make(chan error)
	go func() {
		_, err := s.Open(context.Background(), o)
		opened <- err
	}()
	eventually(t, "Down is told", func() bool { return len(ev.of(broker.Down)) > 0 })
	ts.up()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	ack(t, s, receive(t, s, 1)...)
	eventually(t, "Up is told", func() bool { return len(ev.of(broker.Up)) == 1 })
}

func TestJetStreamNotEnabled(t *testing.T) {
	t.Parallel()
	ts := startServer(t, noJetStream)
	s, _ := natsbroker.NewSource(config(ts.url()))
	defer closeSource(t, s)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(broker.Event) {}})
	if err == nil || ctx.Err() != nil || !strings.Contains(strings.ToLower(err.Error()), "is it enabled") {
		t.Fatalf("Open: %v", err)
	}
}

func someOptions() broker.Options {
	return broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: func(broker.Event) {}}
}

// Close and Stop before Open, twice; then Open and Receive say ErrClosed.
// What becomes of a pull stands in headers.
func TestServerWithoutHeaders(t *testing.T) {
	t.Parallel()
	ts := startServer(t, func(o *server.Options) { o.NoHeaderSupport = true })
	ts.admin().stream()
	s, err := natsbroker.NewSource(config(ts.url()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSource(t, s) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(broker.Event) {}})
	if !errors.Is(err, nats.ErrHeadersNotSupported) || ctx.Err() != nil {
		t.Errorf("Open: %v, want that there are no headers", err)
	}
}

func TestCloseBeforeOpen(t *testing.T) {
	ctx := context.Background()
	s, _ := natsbroker.NewSource(config("nats://127.0.0.1:1"))
	s.Stop()
	for range 2 {
		if err := s.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Open(ctx, someOptions()); !errors.Is(err, broker.ErrClosed) {
		t.Fatalf("Open after Close: %v", err)
	}
	if _, err := s.Receive(make([]broker.Message, 1)); !errors.Is(err, broker.ErrClosed) {
		t.Fatalf("Receive after Close: %v", err)
	}
}

// Close while Open tries on ends Open.
func TestCloseWhileOpening(t *testing.T) {
	ctx := context.Background()
	s, _ := natsbroker.NewSource(config("nats://127.0.0.1:1"))
	down := make(chan struct{}, 100)
	opened := make(chan error)
	go func() {
		o := someOptions()
		o.Observe = func(broker.Event) { down <- struct{}{} }
		_, err := s.Open(ctx, o)
		opened <- err
	}()
	<-down
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; !errors.Is(err, broker.ErrClosed) {
		t.Fatalf("Open: %v", err)
	}
}

// Close without Stop, from several goroutines beside Ack: what was acked stays so, the rest goes back at once.
func TestCloseBesideAck(t *testing.T) {
	ts, a := serveStream(t)
	a.publish(1, 60)
	s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget.Messages = 60 })
	ms := receive(t, s, 40) // 20 stay in the adapter
	eventually(t, "all are delivered", func() bool { return a.info().NumAckPending == 60 })
	var acked sync.Map
	var wg sync.WaitGroup
	for _, m := range ms[:30] { // 10 are never settled before Close
		wg.Go(func() {
			if err := s.Ack(m.Claim, []uint64{m.Token}); err == nil {
				acked.Store(m.Offset, true)
			} else if !errors.Is(err, broker.ErrLost) {
				t.Errorf("Ack beside Close: %v", err)
			}
		})
	}
	for range 3 {
		wg.Go(func() { closeSource(t, s) })
	}
	wg.Wait()
	if c := ms[0].Claim; c.Startable() || !errors.Is(c.Cause(), broker.ErrClosed) {
		t.Errorf("the claim ended by %v", c.Cause())
	}
	if err := s.Ack(ms[39].Claim, []uint64{ms[39].Token}); !errors.Is(err, broker.ErrLost) {
		t.Errorf("Ack after Close: %v", err)
	}
	if err := s.Nack(ms[38].Claim, []broker.Back{{Token: ms[38].Token}}); !errors.Is(err, broker.ErrLost) {
		t.Errorf("Nack after Close: %v", err)
	}
	// Another one gets, at once, exactly what was not acked.
	n := 0
	acked.Range(func(_, _ any) bool { n++; return true })
	other := open(t, config(ts.url()))
	for _, m := range receive(t, other, 60-n) {
		if _, ok := acked.Load(m.Offset); ok {
			t.Errorf("message %d was acked and comes again", m.Offset)
		}
		ack(t, other, m)
	}
	a.settled()
}

// Close with an ack that cannot be sent returns when its ctx ends, and says so.
func TestCloseWithoutServer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	ts, a := serveStream(t)
	a.publish(1, 1)
	s, _ := natsbroker.NewSource(config(ts.url()))
	if _, err := s.Open(ctx, someOptions()); err != nil {
		t.Fatal(err)
	}
	m := receive(t, s, 1)[0]
	ts.down()
	if err := s.Ack(m.Claim, []uint64{m.Token}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := s.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close with an ack that cannot be sent: %v", err)
	}
}

func TestPause(t *testing.T) {
	ts, a := serveStream(t)
	a.publish(1, 30)
	s := open(t, config(ts.url()))
	if err := s.Pause("s.a"); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("Pause of a topic: %v", err)
	}
	if err := s.Resume("s.a"); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("Resume of a topic: %v", err)
	}
	ms := receive(t, s, 10)
	eventually(t, "the rest is buffered", func() bool { return a.info().NumAckPending == 30 })
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	// What was prefetched went back: another process gets it.
	other := open(t, config(ts.url()))
	ack(t, other, receive(t, other, 20)...)
	other.Stop()
	closeSource(t, other)
	ack(t, s, ms...)
	// one that is would be answered, and given back
	eventually(t, "no pull is left", func() bool { return a.info().NumWaiting == 0 })
	before := a.info().Delivered.Consumer
	a.publish(31, 40)
	eventually(t, "all wait", func() bool { return a.info().NumPending == 10 }) // the server counts what it stored a moment later
	if n := a.info().Delivered.Consumer - before; n != 0 {
		t.Fatalf("%d were delivered to a source that is paused", n)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	ack(t, s, receive(t, s, 10)...)
	a.settled()
}

// Where order was promised, what stands behind a message that is out goes back only after it.
func TestStopKeepsOrder(t *testing.T) {
	ts, a := serveStream(t)
	a.publish(1, 10)
	s := open(t, config(ts.url()), inOrder)
	m := receive(t, s, 1)[0]
	eventually(t, "the rest is buffered", func() bool { return a.info().NumAckPending == 10 })
	s.Stop()
	other := open(t, config(ts.url()), inOrder)
	eventually(t, "the other one asks", func() bool { return a.info().NumWaiting > 0 })
	if i := a.info(); i.NumAckPending != 10 || i.NumRedelivered != 0 {
		t.Fatalf("something went back before the message that is out: %+v", i)
	}
	ack(t, s, m)
	for i, m := range receive(t, other, 9) {
		if m.Offset != int64(i+2) {
			t.Fatalf("message %d comes in place of %d", m.Offset, i+2)
		}
		ack(t, other, m)
	}
	a.settled()
}

func TestLag(t *testing.T) {
	ts, a := serveStream(t)
	a.publish(1, 100)
	fresh, _ := natsbroker.NewSource(config(ts.url()))
	if l := fresh.Lag(); l.Waiting != -1 || l.Unsettled != -1 || !l.At.IsZero() {
		t.Fatalf("the lag before Open is %+v", l)
	}
	closeSource(t, fresh)
	s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget.Messages = 20 })
	ms := receive(t, s, 20)
	eventually(t, "80 wait, 100 are unsettled", func() bool {
		l := s.Lag()
		return l.Waiting == 80 && l.Unsettled == 100 &&
			l.Group
	})
	d := drainAll(s)
	ack(t, s, ms...)
	d.has(t, 80)
	a.settled()
	eventually(t, "it reaches 0", func() bool { l := s.Lag(); return l.Waiting == 0 && l.Unsettled == 0 })
	d.stop(t)
}

func TestMessageContents(t *testing.T) {
	ts, a := serveStream(t)
	raw := func(m *nats.Msg) {
		m.Subject = "s.a"
		if _, err := a.js.PublishMsg(context.Background(), m); err != nil {
			t.Fatal(err)
		}
	}
	raw(&nats.Msg{})
	raw(&nats.Msg{Data: []byte("v"), Header: nats.Header{"Longshore-Key": {""}}})
	raw(&nats.Msg{Data: bytes.Repeat([]byte{0xff}, 1_000_000), Header: nats.Header{"Longshore-Key": {"k"}}})
	raw(&nats.Msg{Header: nats.Header{"Longshore-Key-Base64": {"!"}, "Status": {"409"}, "Description": {"Consumer Deleted"}}})
	s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget.Bytes = 8 << 20 })
	ms := receive(t, s, 4)
	if m := ms[0]; m.Value == nil || len(m.Value) != 0 || m.Key != nil || m.Headers.Len() != 0 {
		t.Errorf("an empty message is %+v", m)
	}
	if m := ms[1]; m.Key == nil || len(m.Key) != 0 {
		t.Errorf("an empty key is %v", m.Key)
	}
	if m := ms[2]; len(m.Value) != 1_000_000 || string(m.Key) != "k" {
		t.Errorf("a large message has %d bytes, key %q", len(m.Value), m.Key)
	}
	if m := ms[3]; m.Key != nil || m.Headers.Len() != 3 {
		t.Errorf("a message that looks like a status is %+v", m)
	}
	ack(t, s, ms...)
	a.settled()
}
