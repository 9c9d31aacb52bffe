package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// Acks that were on their way when the connection went say nothing of the messages of a stream that was made anew meanwhile,
// though these have the same sequences, and another process has them.
func TestOldAcksToANewStream(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 10)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.Recreate, cfg.AckWait = true, time.Minute
	away := open(t, cfg)
	ms := receive(t, away, 10)
	ackLate(t, p, away, ms...)

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
	ts, a := serveStream(t)
	a.publish(1, 10)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.Recreate, cfg.AckWait, cfg.Heartbeat = true, time.Minute, time.Minute
	away := open(t, cfg)
	ms := receive(t, away, 10)
	p.cut(toServer)
	a.anew()
	a.publish(1, 10)
	pass(t, 300*time.Millisecond, "it was told")
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
	type meanwhile func(t *testing.T, p *proxy, away *opened, ms []broker.Message)
	for name, c := range map[string]struct {
		budget    int
		meanwhile meanwhile
	}{
		"without a connection": {500, func(t *testing.T, p *proxy, away *opened, ms []broker.Message) {
			p.shut()
			for _, m := range ms {
				if err := away.Nack(m.Claim, []broker.Back{{Token: m.Token}}); err != nil {
					t.Fatal(err)
				}
			}
		}},
		"with one": {500, func(_ *testing.T, p *proxy, _ *opened, _ []broker.Message) { p.cut(toServer) }},
		// Nobody tells it that the consumer was deleted: it looks, by and by.
		"while it asks for nothing": {20, func(*testing.T, *proxy, *opened, []broker.Message) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			a.publish(1, 20)
			p := startProxy(t, ts.opts.Port)
			cfg := config(p.url())
			cfg.Recreate, cfg.AckWait, cfg.Heartbeat, cfg.Poll = true, time.Minute, time.Minute, time.Second
			away := open(t, cfg, func(o *broker.Options) { o.Budget.Messages = c.budget })
			ms := receive(t, away, 10) // and 10 are buffered
			eventually(t, "all are there", func() bool { return a.info().NumAckPending == 20 })
			c.meanwhile(t, p, away, ms)
			a.anew()
			a.publish(1, 20)
			cfg.URLs = []string{ts.url()}
			s := open(t, cfg)
			news := receive(t, s, 20)
			p.heal()
			eventually(t, "who was away has found the new one", func() bool { return len(away.events.of(broker.Assigned)) == 2 })
			pass(t, 300*time.Millisecond, "it had its say")
			ack(t, s, news...)
			a.settled()
			if n := a.info().Delivered.Consumer; n != 20 {
				t.Errorf("there were %d deliveries of 20 messages, all of which one process had", n)
			}
		})
	}
}

// A process that asks for nothing is not told that the consumer was deleted. Once it has got a message of the new stream that
// shows it, nothing goes out of what it still has of the old one: one that counts from the beginning, or, where another process
// had as many before, one at the sequence of another message.
func TestOldAcksAfterAMessageOfTheNewStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		acked   int
		another bool
	}{"it counts from the beginning": {0, false}, "another is out": {0, true}, "another is finished": {1, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			a.publish(1, 3)
			cfg := config(ts.url())
			cfg.Recreate, cfg.AckWait, cfg.Poll = true, time.Minute, time.Hour
			s := open(t, cfg, func(o *broker.Options) { o.Budget.Messages = 3 })
			old := receive(t, s, 3)
			if err := s.Pause(); err != nil {
				t.Fatal(err)
			}
			if c.acked > 0 {
				ack(t, s, old[:c.acked]...)
			}
			eventually(t, "it asks for nothing", func() bool {
				i := a.info()
				return i.NumAckPending == 3-c.acked && i.NumWaiting == 0
			})
			a.anew()
			a.publish(1, 3)
			if c.another {
				ms := must(must(a.js.Consumer(t.Context(), "S", "c")).Fetch(3)).Messages()
				if err := (<-ms).Nak(); err != nil {
					t.Fatal(err)
				}
			}
			a.again() // the server has that
			s.SetBudget(broker.Budget{Messages: 4 - c.acked, Bytes: 1 << 20})
			if err := s.Resume(); err != nil {
				t.Fatal(err)
			}
			m := receive(t, s, 1)[0]
			if m.Offset != 1 || m.Log() == old[0].Log() {
				t.Errorf("message %d is said to be of %q, and the old one is of %q", m.Offset, m.Log(), old[0].Log())
			}
			for _, m := range old[c.acked:] {
				_ = s.Ack(m.Claim, []uint64{m.Token}) // perhaps it has found the new one already, and says that they are lost
			}
			eventually(t, "it has found the new one", func() bool { return len(s.events.of(broker.Assigned)) == 2 })
			eventually(t, "all are in hand", func() bool { return a.info().NumPending == 0 })
			pass(t, 300*time.Millisecond, "old acks had their time")
			if n := a.info().NumAckPending; n != 3 {
				t.Errorf("%d messages are unsettled, want all 3 of the new stream", n)
			}
		})
	}
}

// What is still out when a process was pinned no more, and its stream was made anew, says nothing of the messages that have its
// sequences now.
func TestOldTurnsToANewStream(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(s *opened, m broker.Message) error{
		"ack":  func(s *opened, m broker.Message) error { return s.Ack(m.Claim, []uint64{m.Token}) },
		"nack": func(s *opened, m broker.Message) error { return s.Nack(m.Claim, []broker.Back{{Token: m.Token}}) },
	} {
		for ended, revokeWait := range map[string]time.Duration{"ended": 50 * time.Millisecond, "ending": time.Hour} {
			t.Run(name+", "+ended, func(t *testing.T) {
				t.Parallel()
				ts, a := serveStream(t)
				cfg := config(ts.url())
				cfg.Recreate, cfg.AckWait, cfg.RevokeWait = true, time.Minute, revokeWait
				s := open(t, cfg, inOrder)
				a.publish(1, 3)
				out := receive(t, s, 3)
				a.unpin()
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
				pass(t, 200*time.Millisecond, "the server heard of it")
				for _, m := range receive(t, s, 3) {
					if err := s.Nack(m.Claim, []broker.Back{{Token: m.Token, Runs: 1}}); err != nil {
						t.Fatal(err)
					}
				}
				twice := receive(t, s, 3)
				ack(t, s, twice...)
				a.settled()
				// The first one may have told whose turn it is, and have been given back while the others were gathered.
				for _, m := range twice[1:] {
					if m.Attempt != 2 {
						t.Errorf("message %d comes for the %dth time, want the second", m.Offset, m.Attempt)
					}
				}
			})
		}
	}
}

// After a loss of power the stream may have lost its last messages, and gives their sequences to others. What is said of those
// that are lost says nothing of these.
func TestOldSettlesAfterAStreamLostItsEnd(t *testing.T) {
	t.Parallel()
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
			c := newPowerCut(t)
			a := c.a
			p := startProxy(t, c.ts.opts.Port)
			cfg := config(p.url())
			cfg.AckWait = time.Minute
			s := open(t, cfg)
			a.publish(1, 5)
			ack(t, s, receive(t, s, 5)...)
			a.settled()
			c.save()
			a.publish(6, 10)
			ms := receive(t, s, 5)
			p.cut(toServer)
			settle(t, s, ms, func() {
				p.shut()
				c.restore()
				p.heal()
				eventually(t, "it is connected again", func() bool { return a.info().NumWaiting > 0 })
			})
			a.publish(6, 10) // others, with the same sequences
			news := receive(t, s, 5)
			pass(t, 2*time.Second, "old acks had their time") // acks without a receipt are said again each second
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

// The same where another process has all of the new ones before this one is connected again: how far the consumer has delivered
// tells nothing then.
func TestOldSettlesAfterAStreamLostItsEndToAnother(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(t *testing.T, s *opened, ms []broker.Message, lost func()){
		"acks on their way": func(t *testing.T, s *opened, ms []broker.Message, lost func()) {
			ack(t, s, ms...)
			lost()
		},
		"handlers that run": func(t *testing.T, s *opened, ms []broker.Message, lost func()) {
			lost()
			ack(t, s, ms...)
		},
	} {
		for _, news := range []int{2, 5} { // fewer than were lost, or as many
			t.Run(fmt.Sprint(name, ", ", news), func(t *testing.T) {
				t.Parallel()
				c := newPowerCut(t)
				p := startProxy(t, c.ts.opts.Port)
				cfg := config(p.url())
				cfg.AckWait = time.Minute
				away := open(t, cfg)
				c.a.publish(1, 5)
				ack(t, away, receive(t, away, 5)...)
				c.a.settled()
				c.save()
				c.a.publish(6, 10)
				ms := receive(t, away, 5)
				p.cut(toServer)
				var s *opened
				var new []broker.Message
				settle(t, away, ms, func() {
					p.shut()
					c.restore()
					cfg.URLs = []string{c.ts.url()}
					s = open(t, cfg)
					c.a.publish(6, 5+news)
					new = receive(t, s, news)
					waiting := c.a.info().NumWaiting
					p.heal()
					eventually(t, "who was away asks again", func() bool { return c.a.info().NumWaiting > waiting })
				})
				pass(t, 2*time.Second, "old acks had their time")
				if n := c.a.info().NumAckPending; n != news {
					t.Errorf("%d messages are unsettled, want the %d that the other process has", n, news)
				}
				ack(t, s, new...)
				c.a.settled()
			})
		}
	}
}

// And where the stream is at another server than the one that the process is connected to, so that its connection stays.
func TestOldSettlesAfterAnotherServerLostTheStream(t *testing.T) {
	t.Parallel()
	for name, budget := range map[string]int{"with a pull": 100, "with a full budget": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			servers := startCluster(t)
			servers[0].admin().stream(func(sc *jetstream.StreamConfig) { sc.Storage = jetstream.MemoryStorage })
			home := must(servers[0].admin().js.Stream(ctx, "S")).CachedInfo().Cluster.Leader
			at := slices.IndexFunc(servers, func(ts *testServer) bool { return ts.opts.ServerName == home })
			near, far := servers[(at+1)%3], servers[(at+2)%3]
			a := near.admin()
			cfg := config(near.url())
			cfg.AckWait = time.Minute
			old := open(t, cfg, func(o *broker.Options) { o.Budget.Messages = budget })
			a.publish(1, 5)
			ms := receive(t, old, 5)
			servers[at].down()
			eventually(t, "it is told", func() bool { return len(old.events.of(broker.Down)) > 0 })
			servers[at].up()
			cfg.URLs = []string{far.url()}
			open(t, cfg)
			eventually(t, "others have the sequences", func() bool {
				stored, err := a.js.Publish(ctx, "s.a", nil)
				return err == nil && stored.Sequence >= 5
			})
			eventually(t, "others are in hand", func() bool { return a.info().NumAckPending >= 5 })
			n := a.info().NumAckPending
			ack(t, old, ms...)
			pass(t, time.Second, "old acks had their time")
			if left := a.info().NumAckPending; left != n {
				t.Errorf("%d messages are unsettled, of %d others", left, n)
			}
		})
	}
}

// powerCut is a server that can be set back to what it had stored.
type powerCut struct {
	t    *testing.T
	ts   *testServer
	a    *admin
	disk string
}

func newPowerCut(t *testing.T) *powerCut {
	disk := filepath.Join(storeDir(t), "disk") // removed after the server is down
	ts := startServer(t)
	c := &powerCut{t, ts, ts.admin(), disk}
	c.a.stream()
	return c
}

// save keeps what is stored now.
func (c *powerCut) save() {
	c.t.Helper()
	c.ts.down()
	if err := os.CopyFS(c.disk, os.DirFS(c.ts.opts.StoreDir)); err != nil {
		c.t.Fatal(err)
	}
	c.ts.up()
	c.a.again()
}

// restore has the server begin with that.
func (c *powerCut) restore() {
	c.t.Helper()
	c.ts.down()
	c.ts.opts.StoreDir = c.disk
	c.ts.up()
	c.a.again()
}

// Where the stream may not be asked for a message, that is warned of once, and nothing waits for it.
func TestSettlesWhereTheStreamMayNotBeAsked(t *testing.T) {
	t.Parallel()
	ts := startServer(t, fewMay(server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.MSG.GET.>"}}}))
	a := ts.admin(nats.UserInfo("all", "word"))
	a.stream()
	a.publish(1, 20)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.User, cfg.Password, cfg.AckWait = "few", broker.NewSecret("word"), time.Minute
	s := open(t, cfg)
	ms := receive(t, s, 20)
	for ; len(ms) > 0; ms = ms[10:] {
		p.drop()
		ack(t, s, ms[:10]...)
		eventually(t, "they are settled", func() bool { return a.info().NumAckPending == len(ms)-10 })
	}
	warned := slices.DeleteFunc(s.events.of(broker.Warning), func(e broker.Event) bool {
		return !strings.Contains(e.Err.Error(), "STREAM.MSG.GET")
	})
	if len(warned) != 1 {
		t.Errorf("it has warned %d times of what it may not ask", len(warned))
	}
}
