package natsbroker_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
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

// A filter that takes all that the stream does leaves nothing out, and what is missing is gone. So is most configuration written.
func TestGapWithFilterOfAll(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Subjects = 100, []string{"s.a", "s.b.*", "t"} })
	cfg := config(ts.url())
	cfg.Subjects = []string{"t", "s.>"}
	s := open(t, cfg)
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no pull is left", func() bool { return a.info().NumWaiting == 0 })
	a.publish(1, 300)
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	ack(t, s, receive(t, s, 100)...)
	a.settled()
	eventually(t, "the gap is told", func() bool { return s.skipped() == 200 })
}

// When the stream takes a subject more, which the filter leaves out, its numbers are missing by design.
func TestNoGapOfASubjectMore(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ts := startServer(t)
	a := ts.admin()
	a.stream(func(c *jetstream.StreamConfig) { c.Subjects = []string{"s.a"} })
	cfg := config(ts.url())
	cfg.Subjects = []string{"s.a"}
	s := open(t, cfg)
	a.publish(1, 3)
	ack(t, s, receive(t, s, 3)...)
	sc := must(a.js.Stream(ctx, "S")).CachedInfo().Config
	sc.Subjects = append(sc.Subjects, "s.b")
	must(a.js.UpdateStream(ctx, sc))
	a.looked(6) // at every fifth at the stream, too
	for range 20 {
		must(a.js.Publish(ctx, "s.b", nil))
	}
	a.publish(4, 4)
	ack(t, s, receive(t, s, 1)...)
	a.settled()
	a.looked(2)
	if n := s.skipped(); n != 0 {
		t.Fatalf("%d messages of another subject were told as skipped", n)
	}
}

// f32: and what a purge takes.
func TestGapByPurge(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
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
			ts, a := serveStream(t)
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

// A stream may be told while in use to keep the last messages of each subject only: what is missing from then on was replaced.
func TestNoGapOfAnEditedStream(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*jetstream.StreamConfig){
		"max_msgs_per_subject": func(sc *jetstream.StreamConfig) { sc.MaxMsgsPerSubject = 1 },
		"allow_rollup":         func(sc *jetstream.StreamConfig) { sc.AllowRollup = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			ts, a := serveStream(t)
			s := open(t, config(ts.url()))
			a.publish(1, 3)
			ack(t, s, receive(t, s, 3)...)
			sc := must(a.js.Stream(ctx, "S")).CachedInfo().Config
			edit(&sc)
			must(a.js.UpdateStream(ctx, sc))
			a.looked(6) // at every fifth at the stream, too
			if err := s.Pause(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "no pull is left", func() bool { return a.info().NumWaiting == 0 })
			a.publish(4, 9)
			newest := nats.NewMsg("s.a")
			newest.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
			if !sc.AllowRollup {
				newest.Header = nil
			}
			must(a.js.PublishMsg(ctx, newest))
			if err := s.Resume(); err != nil {
				t.Fatal(err)
			}
			ms := receive(t, s, 1)
			if ms[0].Offset != 10 {
				t.Fatalf("%d came, of which a newer one is there", ms[0].Offset)
			}
			ack(t, s, ms...)
			a.settled()
			a.looked(2)
			if n := s.skipped(); n != 0 {
				t.Fatalf("%d messages that were replaced were told as skipped", n)
			}
		})
	}
}

// What was deleted, or acked by others, before the consumer was made is no gap, whoever looks; what goes later is one.
func TestNoGapOfBefore(t *testing.T) {
	for name, retention := range map[string]jetstream.RetentionPolicy{
		"deleted": jetstream.LimitsPolicy, "acked by another": jetstream.InterestPolicy, "acked before": jetstream.WorkQueuePolicy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			ts := startServer(t)
			a := ts.admin()
			a.stream(func(sc *jetstream.StreamConfig) { sc.Retention = retention })
			old := must(a.js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: "old", AckPolicy: jetstream.AckExplicitPolicy}))
			a.publish(1, 10)
			st := must(a.js.Stream(ctx, "S"))
			for i := range 10 {
				m := must(old.Next())
				switch {
				case i%2 == 1:
				case retention == jetstream.LimitsPolicy:
					must(0, st.DeleteMsg(ctx, uint64(i+1)))
				default:
					must(0, m.DoubleAck(ctx))
				}
			}
			if retention != jetstream.InterestPolicy { // there it is what keeps the others
				must(0, a.js.DeleteConsumer(ctx, "S", "old"))
			}
			s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget.Messages = 2 })
			out := receive(t, s, 2)
			later := open(t, config(ts.url()))
			ack(t, later, receive(t, later, 3)...)
			ack(t, s, out...)
			a.settled()
			closeSource(t, s)
			a.looked(2)
			if n := s.skipped() + later.skipped(); n != 0 {
				t.Fatalf("%d messages of before were told as skipped", n)
			}
			if err := later.Pause(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "no pull is left", func() bool { return a.info().NumWaiting == 0 })
			a.publish(11, 14)
			must(0, st.DeleteMsg(ctx, 12))
			if err := later.Resume(); err != nil {
				t.Fatal(err)
			}
			ack(t, later, receive(t, later, 3)...)
			eventually(t, "what is lost since then is told", func() bool { return later.skipped() == 1 })
		})
	}
}

// A mirror keeps its origin's sequences, and takes not all of its messages: those that a filter leaves out, or that were replaced
// before it came to them, are missing by design.
func TestNoGapOfAMirror(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, c := range map[string]struct {
		mirror   jetstream.StreamSource
		perTopic int64
	}{
		"with a filter":               {jetstream.StreamSource{Name: "O", FilterSubject: "s.a"}, 0},
		"of the last of each subject": {jetstream.StreamSource{Name: "O"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startServer(t).admin()
			a.stream(func(sc *jetstream.StreamConfig) { sc.Name, sc.MaxMsgsPerSubject = "O", c.perTopic })
			for _, subject := range []string{"s.b", "s.a", "s.b", "s.b", "s.b", "s.a"} {
				must(a.js.Publish(ctx, subject, nil))
			}
			must(a.js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Mirror: &c.mirror}))
			s := open(t, config(a.nc.ConnectedUrl()))
			d := drainAll(s)
			eventually(t, "the mirror has the last one", func() bool { return a.info().Delivered.Stream == 6 })
			a.settled()
			a.looked(2)
			d.stop(t)
			if n := s.skipped(); n != 0 {
				t.Fatalf("%d messages of the origin were told as skipped", n)
			}
		})
	}
}
