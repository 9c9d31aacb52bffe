package natsbroker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

func TestConfigNamesEveryField(t *testing.T) {
	_, err := natsbroker.NewSource(natsbroker.Config{
		Connection: natsbroker.Connection{
			URLs:     []string{"ftp://x", "nats://", "nats://%zz:hunter2@x"},
			Password: broker.NewSecret("hunter2"), Token: broker.NewSecret("hunter2"), CredsFile: "c", MaxReconnectWait: time.Millisecond,
			TLS: natsbroker.TLS{CertFile: "a"}, DialTimeout: -1,
		},
		Stream: "a.b", AckWait: time.Millisecond, Heartbeat: time.Millisecond, MaxAckPending: -2, Finished: -1, MaxHold: -1,
		Subjects: []string{"a b"}, StartSequence: 4, StartTime: time.Now(), Bind: true, Recreate: true, KeyHeader: "k", KeyToken: 2,
		CreateStream: &jetstream.StreamConfig{Name: "other"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"URLs[0]", "URLs[1]", "URLs[2]", "Token is set, and so is User",
		"CredsFile is set, and so is User", "Password is set and User", "TLS.KeyFile", "DialTimeout",
		"MaxReconnectWait", "Stream", "Consumer", "AckWait", "Heartbeat", "MaxAckPending", "Finished", "MaxHold", "Subjects[0]",
		"StartSequence", "StartTime", "KeyHeader", "Recreate is set, and so is Bind", "CreateStream.Name"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("nothing is said of %s", field)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a password is printed: %v", err)
	}
}

// TestConfigIsWhatAServerTakes: what a server never takes is found before there is one, and not tried for ever.
func TestConfigIsWhatAServerTakes(t *testing.T) {
	good := natsbroker.Config{Connection: natsbroker.Connection{URLs: []string{"nats://h:65535", "h:1", "h"}}, Domain: "hub",
		Stream: strings.Repeat("S", 255), Consumer: "c"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*natsbroker.Config){
		"URLs[0] is nats://u:xxxxx@127.0.0.1:99999: want a port from 1 to 65535": func(c *natsbroker.Config) {
			c.URLs = []string{"nats://u:hunter2@127.0.0.1:99999"}
		},
		"URLs[1] is nats://h:0: want a port": func(c *natsbroker.Config) { c.URLs = []string{"h", "h:0"} },
		`Domain is "a b": no dots`:           func(c *natsbroker.Config) { c.Domain = "a b" },
		`Domain is "hub.>": no dots`:         func(c *natsbroker.Config) { c.Domain = "hub.>" },
		"Stream has 256 bytes":               func(c *natsbroker.Config) { c.Stream = strings.Repeat("S", 256) },
		"Consumer has 300 bytes":             func(c *natsbroker.Config) { c.Consumer = strings.Repeat("c", 300) },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestNoPasswordWithoutTLS(t *testing.T) {
	for i, c := range []struct {
		conn natsbroker.Connection
		ok   bool
	}{
		{natsbroker.Connection{URLs: []string{"nats://u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"nats://example.com"}, User: "u", Password: broker.NewSecret("hunter2")}, false},
		{natsbroker.Connection{URLs: []string{"example.com:4222"}, Token: broker.NewSecret("hunter2")}, false},
		// What stands behind a mistyped scheme, or a / ? # in a password, is a path, a query or a fragment.
		{natsbroker.Connection{URLs: []string{"nats//u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"nats:/u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"tls://u:1/hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"tls://u:1?hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"tls://u:1#hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"nats://a,nats://u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"kafka:u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"kafka//u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"tls://example.com/"}}, true},
		{natsbroker.Connection{URLs: []string{"nats://example.com"}, Token: broker.NewSecret("hunter2"), PlaintextAuth: true}, true},
		{natsbroker.Connection{URLs: []string{"tls://example.com"}, Token: broker.NewSecret("hunter2")}, true},
		{natsbroker.Connection{URLs: []string{"nats://example.com"}, Token: broker.NewSecret("hunter2"),
			TLS: natsbroker.TLS{Enabled: true}}, true},
		{natsbroker.Connection{URLs: []string{"nats://[::1]:4222", "nats://localhost", "nats://127.1.2.3"},
			Token: broker.NewSecret("hunter2")}, true},
	} {
		_, err := natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: c.conn})
		if (err == nil) != c.ok || (err != nil && (strings.Contains(err.Error(), "hunter2") ||
			!strings.Contains(err.Error(), "URLs[0]"))) {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

func TestForeignSettingsAreReportedAndKept(t *testing.T) {
	ts := startServer(t)
	a := ts.admin()
	a.stream(func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 })
	theirs := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 7 * time.Second, MaxDeliver: 4,
		MaxAckPending: 10, FilterSubject: "s.x", DeliverPolicy: jetstream.DeliverNewPolicy, InactiveThreshold: time.Hour,
		HeadersOnly: true}
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
		"deliver_policy", "inactive_threshold", "headers_only", "max_msgs", "storage"} {
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
	ts := startServer(t)
	a := ts.admin()
	a.stream()
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

// Whoever may change the consumer may do so while it is in use.
func TestConsumerChangedWhileInUse(t *testing.T) {
	for name, change := range map[string]func(*jetstream.ConsumerConfig){
		"limits on pulls": func(cc *jetstream.ConsumerConfig) { cc.MaxRequestBatch, cc.MaxRequestExpires = 7, 2*time.Second },
		"ack wait":        func(cc *jetstream.ConsumerConfig) { cc.AckWait = time.Second },
		"backoff":         func(cc *jetstream.ConsumerConfig) { cc.BackOff = []time.Duration{time.Second} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startServer(t)
			a := ts.admin()
			a.stream()
			s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget.Messages = 200 })
			a.change(change)
			for range 3 { // what was asked for before the change, and more
				a.publish(1, 100)
				ack(t, s, receive(t, s, 100)...)
			}
			before := a.info().Delivered.Consumer
			a.publish(1, 100)
			ms := receive(t, s, 100)
			pass(t, 3*time.Second, "they are held") // longer than the new ack wait
			if n := a.info().Delivered.Consumer - before; n != 100 {
				t.Errorf("there were %d deliveries of 100 messages, all of which are here", n)
			}
			ack(t, s, ms...)
			a.settled()
		})
	}
}

// What it has otherwise from then on is told, once.
func TestForeignSettingsMadeLaterAreReported(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	s := open(t, config(ts.url()))
	a.change(func(cc *jetstream.ConsumerConfig) { cc.HeadersOnly, cc.MaxDeliver = true, 3 })
	told := s.events.of(broker.Warning)
	for _, want := range []string{"headers_only", "max_deliver is 3"} {
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

func TestUnusableConsumersAreRefused(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
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

// f13: no server at first. Open tries on with Down events until ctx ends; a server that comes is found.
func TestOpenWithoutServer(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
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
	ts := startServer(t)
	a := ts.admin()
	a.stream()
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
	ts := startServer(t)
	a := ts.admin()
	a.stream()
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

func budgetServer(t *testing.T) (*testServer, *admin) {
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	return ts, a
}

// atRest waits until the server has nothing more to give for what it was asked.
func atRest(a *admin) {
	a.t.Helper()
	last, since := uint64(0), time.Now()
	eventually(a.t, "deliveries come to rest", func() bool {
		if d := a.info().Delivered.Consumer; d != last {
			last, since = d, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
}

// The server never has more out than the budget's messages; SetBudget moves it.
func TestBudgetMessages(t *testing.T) {
	t.Parallel()
	ts, a := budgetServer(t)
	a.publish(1, 100)
	s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget.Messages = 10 })
	ms := receive(t, s, 10)
	atRest(a)
	if n := a.info().NumAckPending; n != 10 {
		t.Fatalf("%d messages are out, with a budget of 10", n)
	}
	ack(t, s, ms[:3]...)
	ms = append(ms[3:], receive(t, s, 3)...)
	atRest(a)
	if n := a.info().NumAckPending; n != 10 {
		t.Fatalf("%d messages are out, with a budget of 10", n)
	}
	s.SetBudget(broker.Budget{Messages: 20, Bytes: 1 << 20})
	ms = append(ms, receive(t, s, 10)...)
	s.SetBudget(broker.Budget{Messages: 200, Bytes: 1 << 20})
	ack(t, s, append(ms, receive(t, s, 77)...)...)
	a.settled()
}

// Nor more bytes than the budget's and one message.
func TestBudgetBytes(t *testing.T) {
	t.Parallel()
	ts, a := budgetServer(t)
	payload := bytes.Repeat([]byte("x"), 10_000)
	for range 50 {
		if _, err := a.js.Publish(context.Background(), "s.b", payload); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget = broker.Budget{Messages: 1000, Bytes: 100_000} })
	for left := 50; left > 0; {
		eventually(t, "something is out", func() bool { return a.info().NumAckPending > 0 })
		atRest(a)
		n := a.info().NumAckPending
		if n > 11 {
			t.Fatalf("%d messages of 10 kB are out, with a budget of 100 kB", n)
		}
		ack(t, s, receive(t, s, n)...)
		left -= n
	}
	a.settled()
}

// A message larger than the whole budget comes alone.
func TestBudgetOneLargeMessage(t *testing.T) {
	ts, a := budgetServer(t)
	for _, n := range []int{10, 900_000, 20, 900_000} {
		if _, err := a.js.Publish(context.Background(), "s.c", make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget = broker.Budget{Messages: 1000, Bytes: 10_000} })
	for range 4 {
		ack(t, s, receive(t, s, 1)...)
	}
	a.settled()
}

func TestPause(t *testing.T) {
	ts := startServer(t)
	a := ts.admin()
	a.stream()
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
	ts := startServer(t)
	a := ts.admin()
	a.stream()
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
	ts := startServer(t)
	a := ts.admin()
	a.stream()
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
	ts := startServer(t)
	a := ts.admin()
	a.stream()
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
