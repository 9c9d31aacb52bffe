package natsbroker_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// skipped is how many messages Gap events have told.
func (s *opened) skipped() (n int64) {
	for _, e := range s.events.of(broker.Gap) {
		n += e.N
	}
	return n
}

// f32: what a limit takes away before anybody got it is counted exactly.
func TestGapByLimit(t *testing.T) {
	ts := startServer(t)
	a := ts.admin()
	a.stream(func(c *jetstream.StreamConfig) { c.MaxMsgs = 100 })
	s := open(t, config(ts.url()))
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no pull is left", func() bool { return a.info().NumWaiting == 0 })
	a.publish(1, 300)
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	ms := receive(t, s, 100)
	if ms[0].Offset != 201 {
		t.Fatalf("the first is %d", ms[0].Offset)
	}
	ack(t, s, ms...)
	a.settled()
	eventually(t, "the gap is told", func() bool { return s.skipped() == 200 })
	if g := s.events.of(broker.Gap)[0]; g.From != 1 || g.Claim == nil {
		t.Fatalf("the gap is %+v", g)
	}
}

// f32: and what a purge takes.
func TestGapByPurge(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	s := open(t, config(ts.url()))
	d := drainAll(s)
	a.publish(1, 50)
	d.has(t, 50)
	a.settled()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no pull is left", func() bool { return a.info().NumWaiting == 0 })
	a.publish(51, 250)
	st, _ := a.js.Stream(context.Background(), "S")
	if err := st.Purge(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the gap is told", func() bool { return s.skipped() == 200 })
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	a.publish(251, 260)
	d.has(t, 60)
	a.settled()
	d.stop(t)
	if n := s.skipped(); n != 200 {
		t.Fatalf("%d skipped messages were told, of 200", n)
	}
}

// Sequences of other subjects are missing by design, and are no gap.
func TestNoGapWithFilter(t *testing.T) {
	for name, later := range map[string]bool{"from the first": false, "set while in use": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startServer(t)
			a := ts.admin()
			a.stream()
			cfg := config(ts.url())
			if !later {
				cfg.Subjects = []string{"s.b"}
			}
			s := open(t, cfg)
			if later {
				a.change(func(cc *jetstream.ConsumerConfig) { cc.FilterSubject = "s.b" })
			}
			for range 2 {
				a.publish(1, 20)
				if _, err := a.js.Publish(context.Background(), "s.b", nil); err != nil {
					t.Fatal(err)
				}
				ack(t, s, receive(t, s, 1)...)
			}
			a.settled()
			if n := s.skipped(); n != 0 {
				t.Fatalf("%d messages of other subjects were told as skipped", n)
			}
		})
	}
}

// f33: deleted and recreated things are noticed within 5 s, and policy decides.
func TestDeleted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, remove := range map[string]func(a *admin) error{
		"consumer": func(a *admin) error { return a.js.DeleteConsumer(ctx, "S", "c") },
		"stream":   func(a *admin) error { return a.js.DeleteStream(ctx, "S") },
	} {
		for _, full := range []bool{false, true} { // with a full budget no pull is there to be told
			t.Run(name, func(t *testing.T) {
				ts := startServer(t)
				a := ts.admin()
				a.stream()
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
				at := time.Now()
				<-m.Claim.Ended()
				if d := time.Since(at); d > 5*time.Second {
					t.Errorf("noticed after %v", d)
				}
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
	ts := startServer(t)
	a := ts.admin()
	a.stream()
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
	at := time.Now()
	eventually(t, "the floor is known", func() bool { return s.Lag().At.After(at) })
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

// f34: the consumer's state is gone after a loss of power. It is noticed, and by policy made anew.
func TestConsumerStateLost(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	cfg := config(ts.url())
	cfg.Recreate, cfg.AckWait = true, time.Second
	s := open(t, cfg)
	d := drainAll(s)
	a.publish(1, 50)
	d.has(t, 50)
	a.settled()
	ts.down()
	if err := os.RemoveAll(filepath.Join(ts.opts.StoreDir, "jetstream", "$G", "streams", "S", "obs", "c")); err != nil {
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

// f34: the stream's messages are gone, and the consumer stands after its end. It says so, or goes on; it is never silent.
func TestConsumerAheadOfItsStream(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	cfg := config(ts.url())
	cfg.AckWait = time.Second
	s := open(t, cfg)
	d := drainAll(s)
	a.publish(1, 50)
	d.has(t, 50)
	a.settled()
	ts.down()
	if err := os.RemoveAll(filepath.Join(ts.opts.StoreDir, "jetstream", "$G", "streams", "S", "msgs")); err != nil {
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

// Acks that were on their way when the connection went say nothing of the messages of a stream that was made anew meanwhile,
// though these have the same sequences, and another process has them.
func TestOldAcksToANewStream(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	a.publish(1, 10)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.Recreate, cfg.AckWait = true, time.Minute
	away := open(t, cfg)
	ms := receive(t, away, 10)
	p.cut(toServer)
	ack(t, away, ms...)
	eventually(t, "acks are on their way", p.held)

	a.anew()
	a.publish(1, 10)
	cfg.URLs = []string{ts.url()}
	s := open(t, cfg)
	news := receive(t, s, 10)
	p.shut() // what is on its way is lost, and to be said again
	p.heal()
	eventually(t, "who was away has found the new one", func() bool { return len(away.events.of(broker.Assigned)) == 2 })
	late := away.events.of(broker.Unconfirmed)
	if len(late) == 0 || late[0].N != 10 {
		t.Errorf("who was away has told %v of its acks, want that 10 are unconfirmed", late)
	}
	if n := a.info().NumAckPending; n != 10 {
		t.Errorf("%d messages are unsettled, want the 10 that the other process has", n)
	}
	ack(t, s, news...)
	a.settled()
}

// The same over a connection that stays, from when the server has said that the consumer was deleted.
func TestOldAcksAfterADeletion(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	a.publish(1, 10)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.Recreate, cfg.AckWait, cfg.Heartbeat = true, time.Minute, time.Minute
	away := open(t, cfg)
	ms := receive(t, away, 10)
	p.cut(toServer)
	a.anew()
	a.publish(1, 10)
	end := time.Now().Add(300 * time.Millisecond)
	eventually(t, "it was told", func() bool { return time.Now().After(end) })
	ack(t, away, ms...)
	cfg.URLs = []string{ts.url()}
	s := open(t, cfg)
	news := receive(t, s, 10)
	p.heal()
	eventually(t, "it has found the new one", func() bool { return len(away.events.of(broker.Assigned)) == 2 })
	if late := away.events.of(broker.Unconfirmed); len(late) != 1 || late[0].N != 10 {
		t.Errorf("it has told %v of its acks, want that 10 are unconfirmed", late)
	}
	if n := a.info().NumAckPending; n != 10 {
		t.Errorf("%d messages are unsettled, want the 10 that the other process has", n)
	}
	ack(t, s, news...)
	a.settled()
}

// What is given back takes none of them away either: what was given back while there was no connection, and what was never handed
// out.
func TestOldNacksToANewStream(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, p *proxy, away *opened, ms []broker.Message){
		"without a connection": func(t *testing.T, p *proxy, away *opened, ms []broker.Message) {
			p.shut()
			for _, m := range ms {
				if err := away.Nack(m.Claim, []broker.Back{{Token: m.Token}}); err != nil {
					t.Fatal(err)
				}
			}
		},
		"with one": func(_ *testing.T, p *proxy, _ *opened, _ []broker.Message) { p.cut(toServer) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startServer(t)
			a := ts.admin()
			a.stream()
			a.publish(1, 20)
			p := startProxy(t, ts.opts.Port)
			cfg := config(p.url())
			cfg.Recreate, cfg.AckWait, cfg.Heartbeat = true, time.Minute, time.Minute
			away := open(t, cfg)
			ms := receive(t, away, 10) // and 10 are buffered
			eventually(t, "all are there", func() bool { return a.info().NumAckPending == 20 })
			meanwhile(t, p, away, ms)
			a.anew()
			a.publish(1, 20)
			cfg.URLs = []string{ts.url()}
			s := open(t, cfg)
			news := receive(t, s, 20)
			p.heal()
			eventually(t, "who was away has found the new one", func() bool { return len(away.events.of(broker.Assigned)) == 2 })
			end := time.Now().Add(300 * time.Millisecond)
			eventually(t, "it had its say", func() bool { return time.Now().After(end) })
			ack(t, s, news...)
			a.settled()
			if n := a.info().Delivered.Consumer; n != 20 {
				t.Errorf("there were %d deliveries of 20 messages, all of which one process had", n)
			}
		})
	}
}

// What is still out when a process was pinned no more, and its stream was made anew, says nothing of the messages that have its
// sequences now.
func TestOldTurnsToANewStream(t *testing.T) {
	for name, settle := range map[string]func(s *opened, m broker.Message) error{
		"ack":  func(s *opened, m broker.Message) error { return s.Ack(m.Claim, []uint64{m.Token}) },
		"nack": func(s *opened, m broker.Message) error { return s.Nack(m.Claim, []broker.Back{{Token: m.Token}}) },
	} {
		for ended, revokeWait := range map[string]time.Duration{"ended": 50 * time.Millisecond, "ending": time.Hour} {
			t.Run(name+", "+ended, func(t *testing.T) {
				t.Parallel()
				ts := startServer(t)
				a := ts.admin()
				a.stream()
				cfg := config(ts.url())
				cfg.Recreate, cfg.AckWait, cfg.RevokeWait = true, time.Minute, revokeWait
				s := open(t, cfg, inOrder)
				a.publish(1, 3)
				out := receive(t, s, 3)
				if _, err := a.nc.Request("$JS.API.CONSUMER.UNPIN.S.c", []byte(`{"group":"longshore"}`), patience); err != nil {
					t.Fatal(err)
				}
				eventually(t, "it has lost its turn", func() bool {
					return !out[0].Claim.Startable() && (revokeWait == time.Hour || len(s.events.of(broker.Ended)) == 1)
				})
				a.anew()
				eventually(t, "it waits at the new one", func() bool {
					return len(s.events.of(broker.Gap)) == 1 && len(s.events.of(broker.Ended)) == 1 && a.info().NumWaiting > 0
				})
				a.publish(1, 3)
				eventually(t, "it has the new ones", func() bool { return a.info().NumAckPending == 3 })
				for _, m := range out {
					if err := settle(s, m); !errors.Is(err, broker.ErrLost) {
						t.Errorf("%s under the old claim: %v", name, err)
					}
				}
				end := time.Now().Add(200 * time.Millisecond)
				eventually(t, "the server heard of it", func() bool { return time.Now().After(end) })
				for _, m := range receive(t, s, 3) {
					if err := s.Nack(m.Claim, []broker.Back{{Token: m.Token, Runs: 1}}); err != nil {
						t.Fatal(err)
					}
				}
				ack(t, s, receive(t, s, 3)...)
				a.settled()
				if n := a.info().Delivered.Consumer; n != 6 {
					t.Errorf("there were %d deliveries of 3 messages, want two of each", n)
				}
			})
		}
	}
}

// After a loss of power the stream may have lost its last messages, and gives their sequences to others. What is said of those
// that are lost says nothing of these.
func TestOldSettlesAfterAStreamLostItsEnd(t *testing.T) {
	for name, settle := range map[string]func(t *testing.T, s *opened, ms []broker.Message, lost func()){
		"acks on their way": func(t *testing.T, s *opened, ms []broker.Message, lost func()) {
			ack(t, s, ms...)
			lost()
		},
		"handlers that run": func(t *testing.T, s *opened, ms []broker.Message, lost func()) {
			lost()
			for _, m := range ms {
				if err := s.Ack(m.Claim, []uint64{m.Token}); err != nil {
					t.Errorf("an ack of message %d, which is lost: %v", m.Offset, err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startServer(t)
			a := ts.admin()
			a.stream()
			p := startProxy(t, ts.opts.Port)
			cfg := config(p.url())
			cfg.AckWait = time.Minute
			s := open(t, cfg)
			a.publish(1, 5)
			ack(t, s, receive(t, s, 5)...)
			a.settled()
			ts.down()
			disk := filepath.Join(t.TempDir(), "disk")
			if err := os.CopyFS(disk, os.DirFS(ts.opts.StoreDir)); err != nil {
				t.Fatal(err)
			}
			ts.up()
			a.again()
			a.publish(6, 10)
			ms := receive(t, s, 5)
			p.cut(toServer)
			settle(t, s, ms, func() {
				p.shut()
				ts.down()
				ts.opts.StoreDir = disk
				ts.up()
				a.again()
				p.heal()
				eventually(t, "it is connected again", func() bool { return a.info().NumWaiting > 0 })
			})
			a.publish(6, 10) // others, with the same sequences
			news := receive(t, s, 5)
			end := time.Now().Add(2 * time.Second) // acks without a receipt are said again each second
			eventually(t, "old acks had their time", func() bool { return time.Now().After(end) })
			for _, m := range news {
				if err := s.Nack(m.Claim, []broker.Back{{Token: m.Token, Runs: 1}}); err != nil {
					t.Fatal(err)
				}
			}
			ack(t, s, receive(t, s, 5)...)
			a.settled()
		})
	}
}

// Who resets the consumer wants messages to be handled again. They are not taken for finished, and an order goes on.
func TestConsumerReset(t *testing.T) {
	for name, ordered := range map[string]bool{"no order": false, "order": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startServer(t)
			a := ts.admin()
			a.stream()
			cfg := config(ts.url())
			cfg.AckWait = time.Hour
			s := open(t, cfg, func(o *broker.Options) { o.Ordered = ordered })
			a.publish(1, 20)
			ack(t, s, receive(t, s, 20)...)
			a.settled()
			end := time.Now().Add(2 * time.Second)
			eventually(t, "the acks have their receipts", func() bool { return time.Now().After(end) })
			if _, err := a.js.ResetConsumerToSequence(t.Context(), "S", "c", 6); err != nil {
				t.Fatal(err)
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

// A pin that the new consumer gave to a request of before it was known is not left to nobody, until its timeout.
func TestPinnedBeforeTheNewConsumerIsKnown(t *testing.T) {
	for name, first := range map[string]int{"who had its turn": 3, "who stood by": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startServer(t)
			a := ts.admin()
			a.stream()
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
			end := time.Now().Add(200 * time.Millisecond)
			eventually(t, "it asks, and asks for the consumer", func() bool { return time.Now().After(end) })
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
