package natsbroker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

func TestForeignSettingsAreReportedAndKept(t *testing.T) {
	ts := startServer(t)
	a := ts.admin()
	a.stream(func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 })
	theirs := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 7 * time.Second, MaxDeliver: 4,
		MaxAckPending: 10, FilterSubject: "s.x", DeliverPolicy: jetstream.DeliverNewPolicy, InactiveThreshold: time.Hour}
	if _, err := a.js.CreateConsumer(context.Background(), "S", theirs); err != nil {
		t.Fatal(err)
	}
	before := a.info().Config
	cfg := config(ts.url())
	cfg.CreateStream = &jetstream.StreamConfig{Subjects: []string{"s.>"}, Storage: jetstream.MemoryStorage}
	s := open(t, cfg)
	if s.traits.MaxDeliveries != 4 || s.traits.Attempts != broker.AtMost || s.traits.NativeDelay < 24*time.Hour ||
		s.traits.AtMostOnce {
		t.Errorf("traits are %+v", s.traits)
	}
	for _, field := range []string{"ack_wait", "max_deliver", "max_ack_pending is 10 there", "max_ack_pending is 10 for all",
		"filter_subjects",
		"deliver_policy", "inactive_threshold", "max_msgs", "storage"} {
		eventually(t, field+" is reported", func() bool {
			n := 0
			for _, e := range s.events.of(broker.Warning) {
				if strings.Contains(e.Err.Error(), field) {
					n++
				}
			}
			return n == 1
		})
	}
	if after := a.info().Config; fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the consumer was changed from %v to %v", before, after)
	}
}

// Limits on pulls that a consumer has are kept.
func TestLimitsOnPulls(t *testing.T) {
	ts, a := serveStream(t)
	a.publish(1, 100)
	theirs := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, MaxRequestBatch: 7,
		MaxRequestMaxBytes: 4000,
		MaxRequestExpires:  2 * time.Second}
	if _, err := a.js.CreateConsumer(context.Background(), "S", theirs); err != nil {
		t.Fatal(err)
	}
	cfg := config(ts.url())
	cfg.Bind, cfg.Heartbeat = true, 20*time.Second
	s := open(t, cfg)
	for range 10 {
		ack(t, s, receive(t, s, 10)...)
	}
	a.settled()
	for _, w := range s.events.of(broker.Warning) {
		t.Errorf("warning: %v", w.Err)
	}
}

// A server says nothing to a request that it has no room for, where that asks for heartbeats. What is missing is told.
func TestMoreRequestsThanMayWait(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	theirs := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, MaxWaiting: 1}
	if _, err := a.js.CreateConsumer(t.Context(), "S", theirs); err != nil {
		t.Fatal(err)
	}
	cfg := config(ts.url())
	cfg.Bind = true
	first := open(t, cfg)
	eventually(t, "it waits", func() bool { return a.info().NumWaiting == 1 })
	second := open(t, cfg)
	eventually(t, "it is told", func() bool { return len(second.events.of(broker.Down)) > 0 })
	if err := second.events.of(broker.Down)[0].Err; !strings.Contains(err.Error(), "max_waiting of 1 ") {
		t.Errorf("it says %v", err)
	}
	if down := first.events.of(broker.Down); len(down) > 0 {
		t.Errorf("the other one says %v", down[0].Err)
	}
}

// Whoever may change the consumer may do so while it is in use.
func TestConsumerChangedWhileInUse(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*jetstream.ConsumerConfig){
		"limits on pulls": func(cc *jetstream.ConsumerConfig) { cc.MaxRequestBatch, cc.MaxRequestExpires = 7, 2*time.Second },
		"ack wait":        func(cc *jetstream.ConsumerConfig) { cc.AckWait = 3 * time.Second },
		"backoff":         func(cc *jetstream.ConsumerConfig) { cc.BackOff = []time.Duration{3 * time.Second} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget.Messages = 200 })
			a.change(change)
			for range 3 { // what was asked for before the change, and more
				a.publish(1, 100)
				ack(t, s, receive(t, s, 100)...)
			}
			before := a.info().Delivered.Consumer
			a.publish(1, 100)
			ms := receive(t, s, 100)
			pass(t, 4*time.Second, "they are held") // longer than the new ack wait
			if n := a.info().Delivered.Consumer - before; n != 100 {
				t.Errorf("there were %d deliveries of 100 messages, all of which are here", n)
			}
			ack(t, s, ms...)
			a.settled()
		})
	}
}

// Set while a process runs, headers_only ends it: nothing is handed out, and acked, without the payload that it has.
func TestHeadersOnlyMadeLater(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]func(*broker.Options){"unordered": func(*broker.Options) {}, "ordered": inOrder} {
		t.Run(name, func(t *testing.T) {
			ts, a := serveStream(t)
			cfg := config(ts.url())
			s := open(t, cfg, o)
			a.publish(1, 5)
			ack(t, s, receive(t, s, 5)...)
			set := func(only bool) {
				cc := a.info().Config
				cc.HeadersOnly = only
				if _, err := a.js.UpdateConsumer(t.Context(), "S", cc); err != nil {
					t.Fatal(err)
				}
			}
			set(true)
			a.publish(6, 10)
			if n, err := s.Receive(make([]broker.Message, 10)); n > 0 || !strings.Contains(err.Error(), "headers_only") {
				t.Errorf("Receive returned %d messages and %v, want what is wrong with the consumer", n, err)
			}
			closeSource(t, s)
			set(false)
			s = open(t, cfg, o)
			for _, m := range receive(t, s, 5) {
				if len(m.Value) == 0 {
					t.Errorf("message %d comes without its payload", m.Offset)
				}
				ack(t, s, m)
			}
			a.settled()
		})
	}
}

// What says of itself that it came without its payload is a message as any other.
func TestForgedSizeIsAHeader(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	s := open(t, config(ts.url()))
	m := &nats.Msg{Subject: "s.x", Header: nats.Header{"Nats-Msg-Size": {"5"}}}
	if _, err := a.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	ack(t, s, receive(t, s, 1)...)
	a.settled()
}

// What it has otherwise from then on is told, once.
func TestForeignSettingsMadeLaterAreReported(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	s := open(t, config(ts.url()))
	a.change(func(cc *jetstream.ConsumerConfig) { cc.InactiveThreshold, cc.MaxDeliver = time.Hour, 3 })
	told := s.events.of(broker.Warning)
	for _, want := range []string{"inactive_threshold", "max_deliver is 3"} {
		n := 0
		for _, w := range told {
			if strings.Contains(w.Err.Error(), want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s was told %d times", want, n)
		}
	}
	if len(told) != 2 {
		t.Errorf("there are %d warnings", len(told))
	}
}

// An ack wait by which messages go to others before they can be handed out is no mere difference: with it the source would not
// open.
func TestLeasesMadeTooShort(t *testing.T) {
	for name, change := range map[string]func(*jetstream.ConsumerConfig){
		"ack_wait is 1ms":       func(cc *jetstream.ConsumerConfig) { cc.AckWait = time.Millisecond },
		"backoff is [1ms 1m0s]": func(cc *jetstream.ConsumerConfig) { cc.BackOff = []time.Duration{time.Millisecond, time.Minute} },
	} {
		for bound, bind := range map[string]bool{"": false, ", bound": true} {
			t.Run(name+bound, func(t *testing.T) {
				t.Parallel()
				ts, a := serveStream(t)
				closeSource(t, open(t, config(ts.url())).Source)
				cfg := config(ts.url())
				cfg.Bind = bind
				s := open(t, cfg)
				a.change(change)
				var told []string
				for _, w := range s.events.of(broker.Warning) {
					told = append(told, w.Err.Error())
				}
				if len(told) != 1 || !strings.Contains(told[0], name) ||
					!strings.Contains(told[0], "messages go to others before they can be handed out") {
					t.Errorf("it is warned of by %q", told)
				}
			})
		}
	}
}

func TestUnusableConsumersAreRefused(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	ctx := context.Background()
	for name, c := range map[string]struct {
		cc   *jetstream.ConsumerConfig
		cfg  func(*natsbroker.Config)
		text string
	}{
		"acks all at once": {&jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy}, nil, "explicit is needed"},
		"no acks":          {&jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, nil, "explicit is needed"},
		"pushes": {&jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, DeliverSubject: "x"}, nil,
			"pull consumer is needed"},
		"headers only": {&jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, HeadersOnly: true}, nil,
			"headers_only is set"},
		"leases of no time": {&jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5,
			BackOff: []time.Duration{0, time.Minute}}, nil, "backoff is [0s 1m0s]"},
		"leases too short": {&jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Millisecond}, nil,
			"ack_wait is 1ms"},
		"no such consumer": {nil, func(c *natsbroker.Config) { c.Bind = true }, "consumer"},
		"no such stream":   {nil, func(c *natsbroker.Config) { c.Stream, c.Missing = "T", "stop" }, "stream T"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(ts.url())
			cfg.Consumer = strings.ReplaceAll(name, " ", "-")
			if c.cc != nil {
				cc := *c.cc
				cc.Durable = cfg.Consumer
				var err error
				if cc.DeliverSubject != "" {
					_, err = a.js.CreatePushConsumer(ctx, "S", cc)
				} else {
					_, err = a.js.CreateConsumer(ctx, "S", cc)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if c.cfg != nil {
				c.cfg(&cfg)
			}
			s, err := natsbroker.NewSource(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer closeSource(t, s)
			short, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			_, err = s.Open(short, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(broker.Event) {}})
			if err == nil || short.Err() != nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("Open: %v", err)
			}
		})
	}
}

// A filter that no subject of the stream has anything of is told: nothing would ever come, and nothing else would say why. What a
// stream gives another subject has one that it does not name.
func TestFilterThatTheStreamDoesNotTakeIsReported(t *testing.T) {
	ts := startServer(t)
	a := ts.admin()
	a.stream(func(*jetstream.StreamConfig) {}) // S takes s.>
	if _, err := a.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MOVED", Subjects: []string{"u.>"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "u.>", Destination: "moved.>"}}); err != nil {
		t.Fatal(err)
	}
	consumers := 0
	warnings := func(stream string, subjects ...string) (said []string) {
		consumers++
		cfg := config(ts.url())
		cfg.Stream, cfg.Consumer, cfg.Subjects = stream, fmt.Sprint("c", consumers), subjects
		s := open(t, cfg)
		eventually(t, "it says that it was made", func() bool { return len(s.events.of(broker.Notice)) > 0 })
		for _, e := range s.events.of(broker.Warning) {
			said = append(said, e.Err.Error())
		}
		return said
	}
	for _, subjects := range [][]string{nil, {"s.x"}, {"s.*", "s.a.b"}, {"*.x"}, {">"}} {
		if said := warnings("S", subjects...); len(said) > 0 {
			t.Errorf("%v: %q", subjects, said)
		}
	}
	if said := warnings("MOVED", "moved.x"); len(said) > 0 {
		t.Errorf("where subjects are changed: %q", said)
	}
	const want = `filter_subjects has "t.>", and the stream takes only [s.>]`
	if said := warnings("S", "s.x", "t.>"); len(said) != 1 || !strings.Contains(said[0], want) {
		t.Errorf("said %q, want %q", said, want)
	}
}
