package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// recorder keeps what is published and answers with err.
type recorder struct {
	got []broker.Outgoing
	err error
}

func (r *recorder) Publish(_ context.Context, ms []broker.Outgoing) error {
	r.got = append(r.got, ms...)
	return r.err
}

func (r *recorder) Close(context.Context) error { return nil }

func TestPublishCopies(t *testing.T) {
	p := &recorder{}
	build := func(to string) consumer.Handler {
		h, err := handlers.Default().Build("publish", &handlers.Setup{Publisher: p, Topics: []string{"in.>"}},
			handlers.NewOptions(map[string]any{"to": to, "drop_headers": []any{"Private"}}))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := func(k, v string) broker.Header { return broker.Header{Key: k, Value: []byte(v)} }
	m := withHeaders(t, "in.a", h("a", "1"), h("a", "2"), h("Nats-Rollup", "all"), h("nats-msg-id", "x"),
		h("Longshore-Attempts", "9"), h("private", "p"), h("bin", "\x00\xff"))
	m.Topic, m.Key, m.Value, m.Offset, m.Nanos = "in.a", []byte("key"), []byte("value\x00"), 7, 5
	one, two := build("out"), build("out2")
	for _, f := range []consumer.Handler{one, one, two} {
		if err := f(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	first := p.got[0]
	if first.Topic != "out" || string(first.Key) != "key" || string(first.Value) != "value\x00" ||
		fmt.Sprintf("%s", first.Headers) != "[{a 1} {a 2} {bin \x00\xff}]" {
		t.Errorf("published %+v, headers %s", first, first.Headers)
	}
	if first.ID == "" || first.ID != p.got[1].ID || first.ID == p.got[2].ID {
		t.Errorf("IDs %q, %q for a repeat, %q for another target", first.ID, p.got[1].ID, p.got[2].ID)
	}
	m.Offset++
	if err := one(t.Context(), m); err != nil || p.got[3].ID == first.ID {
		t.Errorf("the next message has the same ID, or %v", err)
	}
	m.Offset, m.Name = -1, ""
	if err := one(t.Context(), m); err != nil || p.got[4].ID != "" {
		t.Errorf("a message that cannot be told apart got the ID %q, or %v", p.got[4].ID, err)
	}
}

// A refusal for good is dead-lettered, all else is retried; nothing is acked that was not confirmed.
func TestPublishFailures(t *testing.T) {
	for _, c := range []struct {
		err       error
		permanent bool
	}{
		{&broker.PublishError{Errs: []error{fmt.Errorf("too large: %w", broker.ErrRefused)}}, true},
		{&broker.PublishError{Errs: []error{fmt.Errorf("no out: %w: %w", broker.ErrNoTopic, broker.ErrRefused)}}, false},
		{&broker.PublishError{Errs: []error{errors.New("no answer")}}, false},
		{broker.ErrClosed, false},
		{context.DeadlineExceeded, false},
	} {
		h, err := handlers.Publish(&recorder{err: c.err}, nil, handlers.PublishConfig{To: "out"})
		if err != nil {
			t.Fatal(err)
		}
		o := handled(t, h, broker.Outgoing{Topic: "in", Value: []byte("x")})
		if _, retried := o.retry(); o.permanent() != c.permanent || retried == c.permanent || !errors.Is(o.failed.Err, c.err) {
			t.Errorf("%v: outcome %+v", c.err, o.failed)
		}
	}
}

// slowRefusal is a broker that takes its time to find out that there is no topic.
type slowRefusal struct {
	asked int
	made  bool
}

func (s *slowRefusal) Publish(context.Context, []broker.Outgoing) error {
	s.asked++
	if s.made {
		return nil
	}
	time.Sleep(10 * time.Second)
	return broker.NoTopic(errors.New("unknown topic"))
}

func (s *slowRefusal) Close(context.Context) error { return nil }

// A target that does not exist holds one worker at most, and is found when it is there. The other messages are retried.
func TestPublishToWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slowRefusal{}
		h, err := handlers.Publish(p, nil, handlers.PublishConfig{To: "out"})
		if err != nil {
			t.Fatal(err)
		}
		publish := func() (took time.Duration, err error) {
			began := time.Now()
			err = h(t.Context(), &consumer.Message{Topic: "in"})
			return time.Since(began), err
		}
		if _, err := publish(); !errors.Is(err, broker.ErrNoTopic) {
			t.Fatal(err)
		}
		missing := func() {
			t.Helper()
			took, err := publish()
			if wait := consumer.RetryDelay(err); took > 0 || !errors.Is(err, broker.ErrNoTopic) || wait <= 0 || wait > 10*time.Second {
				t.Errorf("after %v: %v, again in %v", took, err, wait)
			}
		}
		missing()
		time.Sleep(10 * time.Second)
		probe := make(chan error)
		go func() { _, err := publish(); probe <- err }()
		time.Sleep(time.Second)
		missing()
		if err := <-probe; !errors.Is(err, broker.ErrNoTopic) || p.asked != 2 {
			t.Errorf("%v, asked %d times", err, p.asked)
		}
		p.made = true
		missing()
		time.Sleep(10 * time.Second)
		for range 2 {
			if took, err := publish(); took > 0 || err != nil {
				t.Errorf("after %v: %v", took, err)
			}
		}
	})
}

func TestPublishRefusesLoops(t *testing.T) {
	for _, c := range []struct {
		to     string
		topics []string
		want   string // empty: accepted
	}{
		{"out", []string{"in"}, ""},
		{"in.a", []string{"in.*.b", "in"}, ""},
		{"in", []string{"x", "in"}, `to: "in" is read by this consumer ("in")`},
		{"in.a", []string{"in.>"}, `is read by this consumer ("in.>")`},
		{"", nil, "to: is required"},
		{"out.*", nil, "to: has a wildcard"},
		{"a b", nil, "to: has a blank"},
		{"$JS.API.STREAM.DELETE.VICTIM", nil, `begins with $: NATS takes what is published there as a command`},
		{"_INBOX.a", nil, "begins with _INBOX."},
		{"__consumer_offsets", nil, "begins with __"},
	} {
		_, err := handlers.Default().Build("publish", &handlers.Setup{Publisher: &recorder{}, Topics: c.topics},
			handlers.NewOptions(map[string]any{"to": c.to}))
		if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("to %q, topics %v: error %v, want %q", c.to, c.topics, err, c.want)
		}
	}
	if _, err := handlers.Default().Build("publish", nil, handlers.NewOptions(map[string]any{"to": "out"})); err == nil ||
		!strings.Contains(err.Error(), "needs a publisher") {
		t.Errorf("no publisher: %v", err)
	}
	p := &recorder{}
	h, err := handlers.Publish(p, nil, handlers.PublishConfig{To: "in"})
	if err != nil {
		t.Fatal(err)
	}
	if o := handled(t, h, broker.Outgoing{Topic: "in"}); !o.permanent() || !errors.Is(o.failed.Err, handlers.ErrLoop) ||
		len(p.got) != 0 {
		t.Errorf("outcome %+v, published %d", o.failed, len(p.got))
	}
}

func ExamplePublish() {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1}})
	p := b.Publisher()
	defer p.Close(context.Background())
	h, err := handlers.Publish(p, []string{"in"}, handlers.PublishConfig{To: "out"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = h(context.Background(), &consumer.Message{Topic: "in", Value: []byte("hello")})
	fmt.Printf("%s\n", b.Messages("out")[0].Value)
	_, err = handlers.Publish(p, []string{"in"}, handlers.PublishConfig{To: "in"})
	fmt.Println(err)
	// Output:
	// hello
	// publish: to: "in" is read by this consumer ("in"): messages would go round for ever
}
