package natsbroker_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// f33: what is deleted is noticed, and policy decides.
func TestDeleted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, remove := range map[string]func(a *admin) error{
		"consumer": func(a *admin) error { return a.js.DeleteConsumer(ctx, "S", "c") },
		"stream":   func(a *admin) error { return a.js.DeleteStream(ctx, "S") },
	} {
		for _, full := range []bool{false, true} { // with a full budget no pull is there to be told
			t.Run(name, func(t *testing.T) {
				ts, a := serveStream(t)
				a.publish(1, 10)
				s := open(t, config(ts.url()), func(o *broker.Options) {
					if full {
						o.Budget.Messages = 5
					}
				})
				m := receive(t, s, 5)[0]
				if err := remove(a); err != nil {
					t.Fatal(err)
				}
				<-m.Claim.Ended()
				if !errors.Is(m.Claim.Cause(), broker.ErrLost) {
					t.Errorf("the claim ended by %v", m.Claim.Cause())
				}
				if err := s.Ack(m.Claim, []uint64{m.Token}); !errors.Is(err, broker.ErrLost) {
					t.Errorf("Ack after the end: %v", err)
				}
				if err := s.Ack(m.Claim, []uint64{m.Token}); !errors.Is(err, broker.ErrSettled) {
					t.Errorf("second Ack after the end: %v", err)
				}
				if _, err := s.Receive(make([]broker.Message, 1)); err == nil || errors.Is(err, broker.ErrClosed) {
					t.Errorf("Receive: %v", err)
				}
				eventually(t, "Gap and Ended are told", func() bool {
					g := s.events.of(broker.Gap)
					return len(g) == 1 && g[0].N == -1 && len(s.events.of(broker.Ended)) == 1
				})
			})
		}
	}
}

// recreating is a stream, and a source that makes its consumer anew where that is gone.
func recreating(t *testing.T) (*admin, natsbroker.Config) {
	ts, a := serveStream(t)
	cfg := config(ts.url())
	cfg.Recreate = true
	return a, cfg
}

// f33: a deleted consumer is created again at its ack floor; nothing that was finished comes again.
func TestRecreateConsumer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, cfg := recreating(t)
	s := open(t, cfg)
	d := drainAll(s)
	a.publish(1, 100)
	d.has(t, 100)
	a.settled()
	for range 2 { // the first look may have begun before
		at := time.Now()
		eventually(t, "the floor is known", func() bool { return s.Lag().At.After(at) })
	}
	if err := a.js.DeleteConsumer(ctx, "S", "c"); err != nil {
		t.Fatal(err)
	}
	a.publish(101, 150)
	d.has(t, 150)
	a.settled()
	d.stop(t)
	if _, extra := d.seen(); extra > 0 {
		t.Errorf("%d finished messages came again", extra)
	}
	if n := len(s.events.of(broker.Assigned)); n != 2 {
		t.Errorf("%d claims", n)
	}
	// Nothing foreign in what we created ourselves.
	again := open(t, cfg)
	for _, w := range again.events.of(broker.Warning) {
		t.Errorf("warning: %v", w.Err)
	}
}

// On a work queue a consumer can only begin with all that is there, which is what nobody has settled.
func TestRecreateConsumerOfAWorkQueue(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream(func(sc *jetstream.StreamConfig) { sc.Retention = jetstream.WorkQueuePolicy })
	cfg := config(ts.url())
	cfg.Recreate = true
	s := open(t, cfg)
	a.publish(1, 3)
	ack(t, s, receive(t, s, 3)...)
	a.settled()
	at := time.Now()
	eventually(t, "the floor is known", func() bool { return s.Lag().At.After(at) })
	if err := a.js.DeleteConsumer(context.Background(), "S", "c"); err != nil {
		t.Fatal(err)
	}
	a.publish(4, 6)
	for _, m := range receive(t, s, 3) {
		if m.Offset < 4 {
			t.Errorf("%d came again", m.Offset)
		}
		ack(t, s, m)
	}
	a.settled()
}

// What is still out under the claim that ended is delivered by the new consumer to the same process: it is not handed out before
// it was settled.
func TestRecreatedWhileOut(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, cfg := recreating(t)
	cfg.AckWait = 1500 * time.Millisecond
	s := open(t, cfg)
	a.publish(1, 2)
	out := receive(t, s, 2)
	if err := a.js.DeleteConsumer(ctx, "S", "c"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is made anew", func() bool { return len(s.events.of(broker.Assigned)) == 2 })
	a.publish(3, 3)
	if m := receive(t, s, 1)[0]; m.Offset != 3 {
		t.Fatalf("%d was handed out while it is out", m.Offset)
	}
	eventually(t, "what is out is delivered again and again", func() bool { return a.info().NumRedelivered >= 2 })
	for _, m := range out {
		if err := s.Ack(m.Claim, []uint64{m.Token}); !errors.Is(err, broker.ErrLost) {
			t.Errorf("an ack under the old claim: %v", err)
		}
	}
	offsets := map[int64]bool{}
	for _, m := range receive(t, s, 2) {
		offsets[m.Offset] = true
	}
	if !offsets[1] || !offsets[2] {
		t.Errorf("%v came again, want 1 and 2", offsets)
	}
}

// A consumer that is made anew after Stop is no claim: nothing is handed out under it any more.
func TestRecreatedAfterStop(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, cfg := recreating(t)
	s := open(t, cfg)
	a.publish(1, 1)
	ms := make([]broker.Message, 1)
	if _, err := s.Receive(ms); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := a.js.DeleteConsumer(ctx, "S", "c"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is made anew", func() bool {
		_, err := a.js.Consumer(ctx, "S", "c")
		return err == nil && len(s.events.of(broker.Ended)) == 1
	})
	if err := s.Ack(ms[0].Claim, []uint64{ms[0].Token}); !errors.Is(err, broker.ErrLost) {
		t.Errorf("an ack under the old claim: %v", err)
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	if assigned, ended := len(s.events.of(broker.Assigned)), len(s.events.of(broker.Ended)); assigned != 1 || ended != 1 {
		t.Errorf("%d claims were assigned, %d ended, want one", assigned, ended)
	}
}

// A stream made anew has the sequences of the old one; its messages are not taken for finished.
func TestRecreateStream(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, cfg := recreating(t)
	cfg.CreateStream = &jetstream.StreamConfig{Subjects: []string{"s.>"}}
	s := open(t, cfg)
	d := drainAll(s)
	a.publish(1, 20)
	d.has(t, 20)
	a.settled()
	if err := a.js.DeleteStream(ctx, "S"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is made anew", func() bool { return len(s.events.of(broker.Assigned)) == 2 })
	a.publish(1, 20)
	eventually(t, "the new messages are handled, not taken for the old ones",
		func() bool { _, extra := d.seen(); return extra == 20 })
	a.settled()
	d.stop(t)
}

// The same, made anew by somebody else before the source could notice.
func TestRecreatedByOthers(t *testing.T) {
	a, cfg := recreating(t)
	cfg.Poll = time.Second // the deliveries come before the next look
	// What was handed out before that look and acked after it is nobody's any more, and comes again.
	cfg.AckWait = 2 * time.Second
	s := open(t, cfg)
	d := drainAll(s)
	a.publish(1, 20)
	d.has(t, 20)
	a.settled()
	if err := s.Pause(); err != nil { // nothing is told that the consumer is gone
		t.Fatal(err)
	}
	eventually(t, "no pull is left", func() bool { return a.info().NumWaiting == 0 })
	a.anew()
	a.publish(1, 20)
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new messages are handled, not taken for the old ones",
		func() bool { _, extra := d.seen(); return extra >= 20 })
	eventually(t, "it is told, and a new claim begins", func() bool {
		return len(s.events.of(broker.Gap)) == 1 && len(s.events.of(broker.Assigned)) == 2
	})
	a.settled()
	d.stop(t)
}

// A stream that is deleted now and made anew later is waited for, where Missing says so; meanwhile the source is down.
func TestRecreatedLater(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, missing := range []string{"wait", "stop"} {
		t.Run(missing, func(t *testing.T) {
			a, cfg := recreating(t)
			cfg.Missing = missing
			s := open(t, cfg)
			a.publish(1, 3)
			ack(t, s, receive(t, s, 3)...)
			a.settled()
			if err := a.js.DeleteStream(ctx, "S"); err != nil {
				t.Fatal(err)
			}
			if missing == "stop" {
				_, err := s.Receive(make([]broker.Message, 1))
				if !errors.Is(err, jetstream.ErrStreamNotFound) {
					t.Errorf("Receive: %v", err)
				}
				return
			}
			eventually(t, "it is down", func() bool { return len(s.events.of(broker.Down)) > 0 })
			if e := s.events.of(broker.Down)[0]; !strings.Contains(e.Err.Error(), "there is no stream S") {
				t.Errorf("it is down by %v", e.Err)
			}
			a.stream()
			a.publish(1, 3)
			ack(t, s, receive(t, s, 3)...)
			a.settled()
			eventually(t, "it is up", func() bool { return len(s.events.of(broker.Up)) == 2 })
		})
	}
}

// Servers up to 2.11 tell a moment more for a consumer's creation once they were started again. It is the same consumer.
func TestCreationAMomentLater(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	s := open(t, config(p.url()))
	a.publish(1, 3)
	out := receive(t, s, 3)
	ts.down()
	p.rewrite(func(b []byte) {
		if m := consumerCreated.FindSubmatchIndex(b); m != nil {
			at := must(time.Parse(time.RFC3339Nano, string(b[m[2]:m[3]])))
			if later := at.Add(70 * time.Microsecond).Format(time.RFC3339Nano); len(later) == m[3]-m[2] {
				copy(b[m[2]:], later)
			}
		}
	})
	ts.up()
	a.again()
	ack(t, s, out...)
	a.settled()
	a.looked(2)
	a.publish(4, 5)
	ack(t, s, receive(t, s, 2)...)
	a.settled()
	closeSource(t, s)
	if gaps, claims := len(s.events.of(broker.Gap)), len(s.events.of(broker.Assigned)); gaps != 0 || claims != 1 {
		t.Errorf("%d gaps and %d claims were told, want none and one", gaps, claims)
	}
}

var consumerCreated = regexp.MustCompile(`"name":"c","created":"([^"]+)"`)

// f34: the consumer's state is gone after a loss of power. It is noticed, and by policy made anew.
func TestConsumerStateLost(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	cfg := config(ts.url())
	cfg.Recreate, cfg.AckWait = true, time.Second
	s := open(t, cfg)
	d := drainAll(s)
	a.publish(1, 50)
	d.has(t, 50)
	a.settled()
	ts.down()
	if err := os.RemoveAll(filepath.Join(ts.streamDir(), "obs", "c")); err != nil {
		t.Fatal(err)
	}
	ts.up()
	eventually(t, "a new claim begins", func() bool { return len(s.events.of(broker.Assigned)) == 2 })
	a.again()
	a.publish(51, 60)
	d.has(t, 60)
	a.settled()
	d.stop(t)
}

// A stream that was restored from an older copy gives sequences again that were settled before. A consumer that is made anew then
// does not begin behind them.
func TestRestoredWithoutItsConsumer(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	cfg := config(ts.url())
	cfg.Recreate, cfg.AckWait = true, time.Second
	a.publish(1, 5)
	dir, older := ts.streamDir(), filepath.Join(ts.opts.StoreDir, "older")
	ts.down()
	if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	ts.up()
	a.again()
	s := open(t, cfg)
	ack(t, s, receive(t, s, 5)...)
	a.publish(6, 20)
	ack(t, s, receive(t, s, 15)...)
	a.settled()
	a.looked(2) // the floor is known
	ts.down()
	if err := errors.Join(os.RemoveAll(dir), os.Rename(older, dir)); err != nil {
		t.Fatal(err)
	}
	ts.up()
	a.again()
	eventually(t, "a new claim begins", func() bool { return len(s.events.of(broker.Assigned)) == 2 })
	a.publish(21, 23)
	ms := receive(t, s, 5+3)
	if m := ms[7]; string(m.Value) != "23" || m.Offset != 8 {
		t.Errorf("the last is %s at %d", m.Value, m.Offset)
	}
	ack(t, s, ms...)
	a.settled()
}

// The same where others have written as much to it as it had, before the process that makes its consumer anew is back.
func TestRestoredAndGrown(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*proxy){
		"at once":                           func(*proxy) {},
		"and the answer that tells is lost": func(p *proxy) { loseAnswers(p, "stream_msg_get_response", 1) },
	} {
		t.Run(name, func(t *testing.T) { restoredAndGrown(t, trouble) })
	}
}

func restoredAndGrown(t *testing.T, trouble func(*proxy)) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.Recreate = true
	a.publish(1, 5)
	dir, older := ts.streamDir(), filepath.Join(ts.opts.StoreDir, "older")
	ts.down()
	if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	ts.up()
	a.again()
	s := open(t, cfg)
	a.publish(6, 20)
	ack(t, s, receive(t, s, 20)...)
	a.settled()
	a.looked(2) // the floor is known
	p.shut()
	ts.down()
	if err := errors.Join(os.RemoveAll(dir), os.Rename(older, dir)); err != nil {
		t.Fatal(err)
	}
	ts.up()
	a.again()
	a.publish(21, 40)
	trouble(p)
	p.heal()
	ms := receive(t, s, 5+20)
	if m := ms[5]; string(m.Value) != "21" || m.Offset != 6 {
		t.Errorf("the first new one is %s at %d", m.Value, m.Offset)
	}
	ack(t, s, ms...)
	a.settled()
}

// f34: the stream's messages are gone, and the consumer stands after its end. It says so, or goes on; it is never silent.
func TestConsumerAheadOfItsStream(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	cfg := config(ts.url())
	cfg.AckWait = time.Second
	s := open(t, cfg)
	d := drainAll(s)
	a.publish(1, 50)
	d.has(t, 50)
	a.settled()
	ts.down()
	if err := os.RemoveAll(filepath.Join(ts.streamDir(), "msgs")); err != nil {
		t.Fatal(err)
	}
	ts.up()
	a.again()
	before, _ := d.seen()
	a.publish(1, 10)
	eventually(t, "the messages come, or a warning", func() bool {
		distinct, extra := d.seen()
		if distinct+extra >= before+10 {
			return true
		}
		for _, e := range s.events.of(broker.Warning) {
			if strings.Contains(e.Err.Error(), "after the end of stream") {
				return true
			}
		}
		return false
	})
	d.stop(t)
}

// Who resets the consumer wants messages to be handled again. They are not taken for finished, and an order goes on; also where
// the source was paused for it, and no pull met the reset.
func TestConsumerReset(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ordered, paused bool }{
		"no order": {}, "order": {ordered: true}, "paused": {paused: true}, "order, paused": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			cfg := config(ts.url())
			cfg.AckWait = time.Hour
			s, prove := openProving(t, cfg, c.ordered)
			a.publish(1, 20)
			prove(a, receive(t, s, 20))
			if c.paused {
				if err := s.Pause(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "it asks for nothing", func() bool { return a.info().NumWaiting == 0 })
			}
			if _, err := a.js.ResetConsumerToSequence(t.Context(), "S", "c", 6); err != nil {
				t.Fatal(err)
			}
			if c.paused {
				if err := s.Resume(); err != nil {
					t.Fatal(err)
				}
			}
			ms := receive(t, s, 15)
			if first := ms[0].Offset; first != 6 {
				t.Errorf("the first that came again is %d", first)
			}
			if err := s.Nack(ms[0].Claim, []broker.Back{{Token: ms[0].Token}}); err != nil { // an order gathers
				t.Fatal(err)
			}
			ack(t, s, ms[1:]...)
			ack(t, s, receive(t, s, 1)...)
			a.settled()
		})
	}
}

// openProving opens a source, and returns what acks its messages, until it has the receipts of all but the first five: one that
// was acked without a receipt, and comes again, is acked again.
func openProving(t *testing.T, cfg natsbroker.Config, ordered bool) (s *opened, prove func(*admin, []broker.Message)) {
	var asked atomic.Int64 // when the receipt was asked for that came last
	s = open(t, cfg, func(o *broker.Options) {
		o.Ordered = ordered
		o.Operated = func(op broker.Operation) {
			if op.Kind == broker.Settle && op.Err == nil {
				asked.Store(time.Now().Add(-op.Took).UnixNano())
			}
		}
	})
	return s, func(a *admin, ms []broker.Message) {
		t.Helper()
		ack(t, s, ms[5:]...)
		eventually(t, "the server has these acks", func() bool { return a.info().NumAckPending == 5 })
		at := time.Now().UnixNano()
		ack(t, s, ms[0])
		eventually(t, "there is a receipt of a later one", func() bool { return asked.Load() >= at })
		ack(t, s, ms[1:5]...)
		a.settled()
	}
}

// A pin that the new consumer gave to a request of before it was known is not left to nobody, until its timeout.
func TestPinnedBeforeTheNewConsumerIsKnown(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]int{"who had its turn": 3, "who stood by": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			p := startProxy(t, ts.opts.Port)
			cfg := config(p.url())
			cfg.Recreate, cfg.AckWait, cfg.Heartbeat = true, time.Minute, time.Minute
			s := open(t, cfg, inOrder)
			a.publish(1, first)
			if first > 0 {
				ack(t, s, receive(t, s, first)...)
			}
			eventually(t, "it waits", func() bool { return a.info().NumWaiting > 0 })
			p.cut(toServer)
			a.anew()
			a.publish(1, 3)
			pass(t, 200*time.Millisecond, "it asks, and asks for the consumer")
			p.heal()
			eventually(t, "it is known", func() bool { return len(s.events.of(broker.Gap)) == 1 })
			ms := make([]broker.Message, 3)
			for n := 0; n < 3; { // some may still have come under the claim of before
				got := receive(t, s, 1)
				if err := s.Ack(got[0].Claim, []uint64{got[0].Token}); err == nil {
					ms[n] = got[0]
					n++
				}
			}
			a.settled()
		})
	}
}

// Acks that were on their way when the consumer was deleted were not too late for their lease, and nobody else got the messages.
func TestDeletedBeforeAcksCame(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	a.publish(1, 3)
	s := open(t, config(p.url()))
	ackLate(t, p, s, receive(t, s, 3)...)
	if err := a.js.DeleteStream(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	p.heal()
	eventually(t, "it is told that they were not confirmed", func() bool { return len(s.events.of(broker.Unconfirmed)) > 0 })
	for _, e := range s.events.of(broker.Unconfirmed) {
		if e.N != 3 || !strings.Contains(e.Err.Error(), "deleted before") {
			t.Errorf("%d are unconfirmed: %v", e.N, e.Err)
		}
	}
}

// A consumer that is to be made anew, and has no room at the moment: that passes, so the source is Down, and goes on when it has.
func TestRecreateWaitsForRoom(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	ts := startServer(t)
	a := ts.admin()
	a.stream(func(sc *jetstream.StreamConfig) { sc.MaxConsumers = 1 })
	cfg := config(ts.url())
	cfg.Recreate = true
	s := open(t, cfg)
	if err := a.js.DeleteConsumer(ctx, "S", "c"); err != nil {
		t.Fatal(err)
	}
	// The source looks twice before it believes that.
	if _, err := a.js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: "another"}); err != nil {
		t.Fatal(err)
	}
	told(t, s.events, "maximum consumers limit reached")
	if err := a.js.DeleteConsumer(ctx, "S", "another"); err != nil {
		t.Fatal(err)
	}
	a.publish(1, 3)
	ack(t, s, receive(t, s, 3)...)
	a.settled()
}

// Who waits for a stream to come again asks for that alone: its consumer is no more, and there is nothing to be said to it.
func TestMissingConsumerIsNotAskedFor(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	cfg := config(ts.url())
	cfg.Recreate = true
	s := open(t, cfg)
	a.publish(1, 1)
	ack(t, s, receive(t, s, 1)...)
	a.settled()
	asks := must(a.nc.SubscribeSync("$JS.API.CONSUMER.INFO.S.c"))
	if err := a.js.DeleteStream(context.Background(), "S"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim ends", func() bool { return len(s.events.of(broker.Ended)) == 1 })
	a.asked("STREAM.INFO.S", 2) // what was asked before that is answered
	before, _, _ := asks.Pending()
	a.asked("STREAM.INFO.S", 10)
	if n, _, _ := asks.Pending(); n > before {
		t.Errorf("it asked %d times for a consumer that is no more", n-before)
	}
}

// A source that makes its stream anew waits for a cluster that has too few servers for it just then.
func TestRecreateWaitsForServers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	p.rewrite(func(b []byte) { // as that is said where one of three servers is away
		for from, to := []byte(`"err_code":10065`), []byte(`"err_code":10005`); bytes.Contains(b, from); {
			copy(b[bytes.Index(b, from):], to)
		}
	})
	cfg := config(p.url())
	cfg.Recreate = true
	cfg.CreateStream = &jetstream.StreamConfig{Subjects: []string{"s.>"}}
	s := open(t, cfg)
	if err := a.js.DeleteStream(ctx, "S"); err != nil {
		t.Fatal(err)
	}
	// The source looks twice before it believes that.
	if _, err := a.js.CreateStream(ctx, jetstream.StreamConfig{Name: "T", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
	told(t, s.events, "subjects overlap")
	if err := a.js.DeleteStream(ctx, "T"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream is there again", func() bool {
		_, err := a.js.Stream(ctx, "S")
		return err == nil
	})
	a.publish(1, 3)
	ack(t, s, receive(t, s, 3)...)
	a.settled()
}
