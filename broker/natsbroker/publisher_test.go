package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

func newPublisher(t testing.TB, url string, change ...func(*natsbroker.PublisherConfig)) *natsbroker.Publisher {
	t.Helper()
	cfg := natsbroker.PublisherConfig{Connection: config(url).Connection}
	for _, c := range change {
		c(&cfg)
	}
	p, err := natsbroker.NewPublisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

// one publishes one message and returns its error.
func one(t testing.TB, p *natsbroker.Publisher, o broker.Outgoing) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := p.Publish(ctx, []broker.Outgoing{o})
	if err == nil {
		return nil
	}
	var pe *broker.PublishError
	if !errors.As(err, &pe) || len(pe.Errs) != 1 {
		t.Fatalf("Publish: %v", err)
	}
	return pe.Errs[0]
}

func TestPublishAndReceive(t *testing.T) {
	ts, a := serveStream(t)
	p := newPublisher(t, ts.url())
	ms := make([]broker.Outgoing, 1000) // more than one window
	for i := range ms {
		ms[i] = broker.Outgoing{Topic: "s.a", Value: fmt.Appendf(nil, "%d", i), ID: fmt.Sprint(i), Key: []byte{byte(i), '\n'},
			Headers: []broker.Header{{Key: "x", Value: []byte("1")}, {Key: "x", Value: []byte("2")}}}
	}
	for range 2 { // the second time, the stream drops all by their ids
		if err := p.Publish(context.Background(), ms); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, config(ts.url()))
	for i := 0; i < 1000; {
		for _, m := range receive(t, s, 100) {
			v, _ := m.Headers.Get("x")
			id, _ := m.Headers.Get("Nats-Msg-Id")
			if string(m.Value) != fmt.Sprint(i) || string(m.Key) != string([]byte{byte(i), '\n'}) || string(v) != "2" ||
				string(id) != fmt.Sprint(i) {
				t.Fatalf("message %d came as %+v", i, m)
			}
			ack(t, s, m)
			i++
		}
	}
	a.settled()
}

func TestPublishRefused(t *testing.T) {
	ts := startServer(t, fewMay(server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{"s.>", "none.>", "$JS.API.>"}}}))
	a := ts.admin(func(o *natsOptions) error { o.User, o.Password = "all", "word"; return nil })
	a.stream(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
	p := newPublisher(t, ts.url(), func(c *natsbroker.PublisherConfig) {
		c.User, c.Password, c.AckTimeout = "few", broker.NewSecret("word"), time.Hour // it is an answer, no timeout
	})
	for name, o := range map[string]broker.Outgoing{
		"too large for the server": {Topic: "s.a", Value: make([]byte, 2<<20)},
		"too large for the stream": {Topic: "s.a", Value: make([]byte, 3000)},
		"no such stream":           {Topic: "none.a"},
		"not allowed":              {Topic: "elsewhere"},
		"a wildcard":               {Topic: "s.*"},
		"a header of two lines":    {Topic: "s.a", Headers: []broker.Header{{Key: "x", Value: []byte("a\nb")}}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := one(t, p, o); !errors.Is(err, broker.ErrRefused) || !strings.Contains(err.Error(), o.Topic) {
				t.Fatalf("Publish: %v", err)
			} else if missing := errors.Is(err, broker.ErrNoTopic); missing != (name == "no such stream") {
				t.Errorf("ErrNoTopic: %t: %v", missing, err)
			} else if missing && strings.Contains(err.Error(), "for good") {
				t.Errorf("whoever makes the stream cures it, and the error says: %v", err)
			}
		})
	}
	// One bad message does not stop the others.
	err := p.Publish(context.Background(), []broker.Outgoing{{Topic: "s.a"}, {Topic: "a b"}, {Topic: "s.a"}})
	var pe *broker.PublishError
	if !errors.As(err, &pe) || pe.Errs[0] != nil || !errors.Is(pe.Errs[1], broker.ErrRefused) || pe.Errs[2] != nil {
		t.Fatalf("Publish of three: %v", err)
	}
}

// A subject may come from a message that anybody wrote. It commands no server, and answers nobody's request.
func TestPublishReserved(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 3)
	requests, err := a.nc.SubscribeSync("_INBOX.>")
	if err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, ts.url())
	for _, topic := range []string{"$JS.API.STREAM.DELETE.S", "$JS.API.STREAM.PURGE.S", "$JS.ACK.S.c.1.1.1.1.0", "$KV.b.k", "$",
		"_INBOX.x.1", "_R_.x", "_GR_.x.y.z"} {
		err := one(t, p, broker.Outgoing{Topic: topic})
		if !errors.Is(err, broker.ErrReserved) || !errors.Is(err, broker.ErrRefused) || !strings.Contains(err.Error(), topic) {
			t.Errorf("Publish to %q: %v", topic, err)
		}
	}
	for _, topic := range []string{"", "s..a", ".s", "s.", "s.*", "s.>", "s a", "s.a\r\nPUB $JS.API.STREAM.DELETE.S 0"} {
		if err := one(t, p, broker.Outgoing{Topic: topic}); !errors.Is(err, broker.ErrRefused) || errors.Is(err, broker.ErrReserved) {
			t.Errorf("Publish to %q: %v", topic, err)
		}
	}
	for _, topic := range []string{"s.$JS", "s._INBOX.x"} { // further on it is a name like any other
		if err := one(t, p, broker.Outgoing{Topic: topic}); err != nil {
			t.Errorf("Publish to %q: %v", topic, err)
		}
	}
	if n := must(must(a.js.Stream(context.Background(), "S")).Info(context.Background())).State.Msgs; n != 5 {
		t.Errorf("%d messages are in the stream", n)
	}
	for {
		m, err := requests.NextMsg(0)
		if err != nil {
			break
		}
		if m.Subject == "_INBOX.x.1" {
			t.Error("somebody's inbox got a message")
		}
	}
}

// A full stream is no reason to give up, and says so.
func TestPublishToAFullStream(t *testing.T) {
	ts := startServer(t)
	a := ts.admin()
	a.stream(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1, jetstream.DiscardNew })
	p := newPublisher(t, ts.url())
	if err := one(t, p, broker.Outgoing{Topic: "s.a"}); err != nil {
		t.Fatal(err)
	}
	if err := one(t, p, broker.Outgoing{Topic: "s.a"}); err == nil || errors.Is(err, broker.ErrRefused) {
		t.Fatalf("Publish to a full stream: %v", err)
	}
}

// Nor is a full account: there may be room again.
func TestPublishToAFullAccount(t *testing.T) {
	ts := startServer(t)
	ts.admin().stream()
	full := server.JetStreamAccountLimits{MaxMemory: -1, MaxStore: 10_000, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1}
	if err := ts.srv.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": full}); err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, ts.url())
	var err error
	for n := 0; n < 20 && err == nil; n++ {
		err = one(t, p, broker.Outgoing{Topic: "s.a", Value: make([]byte, 1000)})
	}
	if err == nil || errors.Is(err, broker.ErrRefused) {
		t.Fatalf("Publish to a full account: %v", err)
	}
}

// Who may not listen to the stream's answers is told so, and nothing is sent that nobody could confirm: it would be stored again
// and again.
func TestPublishWithoutAnswers(t *testing.T) {
	t.Parallel()
	ts := startServer(t, fewMay(server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}}}))
	a := ts.admin(nats.UserInfo("all", "word"))
	a.stream()
	p := newPublisher(t, ts.url(), func(c *natsbroker.PublisherConfig) {
		c.User, c.Password, c.AckTimeout = "few", broker.NewSecret("word"), patience
	})
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), patience/2)
		defer cancel()
		err := p.Publish(ctx, []broker.Outgoing{{Topic: "s.a"}})
		var each *broker.PublishError
		if errors.As(err, &each) {
			err = each.Errs[0]
		}
		if err == nil || !strings.Contains(err.Error(), `Subscription to "_INBOX.`) || errors.Is(err, broker.ErrRefused) {
			t.Fatalf("Publish: %v, want that it may not subscribe", err)
		}
	}
	if n := must(must(a.js.Stream(context.Background(), "S")).Info(context.Background())).State.Msgs; n > 1 {
		t.Errorf("%d messages were stored without a confirmation", n)
	}
}

// A publisher without a connection says why, in the end: its own first word, and what the last attempt met.
func TestPublishWithoutConnection(t *testing.T) {
	t.Parallel()
	ts, _ := serveStream(t)
	p := newPublisher(t, ts.url())
	if err := one(t, p, broker.Outgoing{Topic: "s.a"}); err != nil {
		t.Fatal(err)
	}
	ts.down()
	var err error
	eventually(t, "it says that nobody is there", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err = p.Publish(ctx, []broker.Outgoing{{Topic: "s.a"}})
		return err != nil && strings.Contains(err.Error(), "connection refused")
	})
	if !strings.Contains(err.Error(), "no connection") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Publish: %v", err)
	}
}

// The adapter's name stands in front of an error once.
func TestPublishWithoutCredentials(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*natsbroker.PublisherConfig){
		"CredsFile":  func(c *natsbroker.PublisherConfig) { c.CredsFile = "/nowhere" },
		"TLS.CAFile": func(c *natsbroker.PublisherConfig) { c.TLS.CAFile = "/nowhere" },
	} {
		err := newPublisher(t, "nats://127.0.0.1:1", change).Publish(t.Context(), []broker.Outgoing{{Topic: "s.a"}})
		if err == nil || !strings.Contains(err.Error(), name) || strings.Count(err.Error(), "natsbroker") != 1 {
			t.Errorf("Publish: %v, want what is wrong with %s, and who says so once", err, name)
		}
	}
}

// Whoever else listens to the subject may answer, too, and sooner than the stream, which is not its word.
func TestPublishWhereOthersAnswer(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	answer := func(subject string, answers ...string) {
		t.Helper()
		if _, err := a.nc.Subscribe(subject, func(m *nats.Msg) {
			for _, text := range answers {
				_ = m.Respond([]byte(text))
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	answer("both", "hello", "{}", `{"stream":"S","seq":1}`)
	answer("others", "hello")
	if err := a.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, ts.url(), func(c *natsbroker.PublisherConfig) { c.AckTimeout = 500 * time.Millisecond })
	if err := one(t, p, broker.Outgoing{Topic: "both"}); err != nil {
		t.Errorf("the stream has it: %v", err)
	}
	err := one(t, p, broker.Outgoing{Topic: "others"})
	if err == nil || errors.Is(err, broker.ErrRefused) || !strings.Contains(err.Error(), "no confirmation within 500ms") ||
		!strings.Contains(err.Error(), "others answer") {
		t.Errorf("no stream has it: %v", err)
	}
}

// f38: the broker is away. Publish waits as long as ctx allows, and works when it is back.
func TestPublishWithoutServer(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := newPublisher(t, ts.url())
	short := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		return p.Publish(ctx, []broker.Outgoing{{Topic: "s.a", ID: "1"}})
	}
	ts.down()
	for range 2 {
		if err := short(); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Publish without a server: %v", err)
		}
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := one(t, p, broker.Outgoing{Topic: "s.a", ID: "1"}); err != nil {
				t.Errorf("Publish: %v", err)
			}
		})
	}
	ts.up()
	wg.Wait()
	ts.down()
	if err := short(); err == nil {
		t.Fatal("confirmed without a server")
	}
	ts.up()
	if err := one(t, p, broker.Outgoing{Topic: "s.a", ID: "1"}); err != nil {
		t.Fatal(err)
	}
	st := must(a.js.Stream(context.Background(), "S"))
	if n := must(st.Info(context.Background())).State.Msgs; n != 1 {
		t.Errorf("%d messages with one id", n)
	}
}

func TestPublisherClose(t *testing.T) {
	ts := startServer(t)
	ts.admin().stream()
	ctx := context.Background()
	p := newPublisher(t, ts.url())
	for range 2 {
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Publish(ctx, []broker.Outgoing{{Topic: "s.a"}}); !errors.Is(err, broker.ErrClosed) {
		t.Fatalf("Publish after Close: %v", err)
	}

	p = newPublisher(t, ts.url())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := p.Publish(ctx, []broker.Outgoing{{Topic: "s.a"}}); err != nil && !errors.Is(err, broker.ErrClosed) {
				t.Errorf("Publish beside Close: %v", err)
			}
		})
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// A message's own headers go into its dead letter. Those that the server obeys must not command it a second time.
func TestPublishedHeadersAreNoCommands(t *testing.T) {
	ts, _ := serveStream(t)
	p := newPublisher(t, ts.url())
	if err := one(t, p, broker.Outgoing{Topic: "s.a", Value: []byte("first")}); err != nil {
		t.Fatal(err)
	}
	err := one(t, p, broker.Outgoing{Topic: "s.a", Value: []byte("letter"), ID: "7", Headers: []broker.Header{
		{Key: "Nats-Expected-Last-Sequence", Value: []byte("99")}, {Key: "nats-rollup", Value: []byte("all")}, {Key: "Nats-Msg-Id",
			Value: []byte("old")}}})
	if err != nil {
		t.Fatalf("a copied header was obeyed: %v", err)
	}
	s := open(t, config(ts.url()))
	for _, want := range []string{"first", "letter"} {
		m := receive(t, s, 1)[0]
		if string(m.Value) != want {
			t.Fatalf("received %q, want %q: a copied header purged the stream", m.Value, want)
		}
		if want == "letter" {
			old, _ := m.Headers.Get("Longshore-Nats-Expected-Last-Sequence")
			id, _ := m.Headers.Get("Nats-Msg-Id")
			if string(old) != "99" || string(id) != "7" {
				t.Errorf("the letter has the old header %q and the id %q", old, id)
			}
		}
		ack(t, s, m)
	}
}

// Whether a stream takes a subject is asked once for all messages of a call: where that question gets no answer, each of them
// would wait for one.
func TestMissingStreamIsAskedForOnce(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	asked, err := a.nc.SubscribeSync("$JS.API.STREAM.NAMES")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, ts.url())
	ms := make([]broker.Outgoing, 300)
	for i := range ms {
		ms[i] = broker.Outgoing{Topic: "nowhere." + strconv.Itoa(i%2), Value: []byte("v")}
	}
	err = p.Publish(t.Context(), ms)
	var each *broker.PublishError
	if !errors.As(err, &each) || len(each.Errs) != len(ms) {
		t.Fatal(err)
	}
	for i, err := range each.Errs {
		if !errors.Is(err, broker.ErrNoTopic) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if err := a.nc.Flush(); err != nil { // what came before the answer is pending by then
		t.Fatal(err)
	}
	if n, _, err := asked.Pending(); n != 2 || err != nil {
		t.Errorf("it was asked %d times, want once for each subject", n)
	}
}
