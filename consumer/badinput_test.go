package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// A badInput is a message that no handler can do anything with, at the head of its key.
type badInput struct {
	id, name string
	message  broker.Outgoing
	err      error // its handler's
	runs     int   // of its handler
	class    string
}

// oddHeaders are very many, large ones, ones that are no text, and names that are ours with values that make no sense.
func oddHeaders() []broker.Header {
	hs := []broker.Header{
		{Key: "twice", Value: []byte("first")}, {Key: "twice", Value: []byte("second")}, {Key: "large",
			Value: bytes.Repeat([]byte("x"), 64<<10)},
		{Key: "bytes", Value: []byte{0, 0xff, 0xfe}}, {Key: "break", Value: []byte("a\r\nLongshore-Attempts: 7")}, {Key: "empty",
			Value: nil},
	}
	for len(hs) < 10_000 {
		hs = append(hs, broker.Header{Key: fmt.Sprint("h", len(hs)), Value: []byte("v")})
	}
	return append(hs, forgedHeaders()...)
}

func forgedHeaders() (hs []broker.Header) {
	for _, v := range []string{"-1", "9223372036854775808", "abc", ""} {
		for _, key := range []string{broker.HeaderAttempts, broker.HeaderFirstFailure, broker.HeaderRetryAt,
			broker.HeaderOriginalOffset} {
			hs = append(hs, broker.Header{Key: key, Value: []byte(v)})
		}
	}
	return hs
}

var badInputs = []badInput{
	{"b07", "too large", broker.Outgoing{Value: make([]byte, 2000)}, nil, 0, "oversize"},
	{"b10", "odd headers", broker.Outgoing{Value: []byte("bad"), Headers: oddHeaders()}, consumer.Permanent(errors.New("bad")), 1,
		"permanent"},
	{"b10", "headers above the limit", broker.Outgoing{Value: []byte("bad"),
		Headers: append(oddHeaders(), broker.Header{Key: "huge", Value: make([]byte, 200<<10)})}, nil, 0, "oversize"},
	{"b11", "forged attempts", broker.Outgoing{Value: []byte("bad"), Headers: forgedHeaders()}, errors.New("bad"), 3, "error"},
	{"b17", "undecodable", broker.Outgoing{Value: []byte("bad")}, consumer.Permanent(errors.New("decoding JSON")), 1, "permanent"},
	{"b18", "without a handler", broker.Outgoing{Value: []byte("bad")}, consumer.Permanent(errors.New("no route")), 1, "permanent"},
	{"b24", "poison", broker.Outgoing{Value: []byte("bad")}, errors.New("bad"), 3, "error"},
}

// A bad message holds up its own key until it is in the dead letters, whole, and no other key at all: also when these cannot be
// written to for a while.
func TestBadInputInOrder(t *testing.T) {
	for _, bad := range badInputs {
		for name, down := range map[string]time.Duration{"": 0, ", no dead letters for 10 s": 10 * time.Second} {
			t.Run(bad.id+" "+bad.name+name, func(t *testing.T) {
				onEach(t, func(t *testing.T, b *membroker.Broker) { bad.test(t, b, down) })
			})
		}
	}
}

func (bad badInput) test(t *testing.T, b *membroker.Broker, down time.Duration) {
	var (
		mu    sync.Mutex
		story []string
	)
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		story = append(story, what)
	}
	began, dead := time.Now(), b.Publisher()
	letters := recorder{func(ms []broker.Outgoing) error {
		if time.Since(began) < down {
			return errors.New("down")
		}
		note("letter")
		return dead.Publish(context.Background(), ms)
	}}
	bad.produce(t, b)
	others := 0
	r := start(t, b, consumer.Config{
		Order: consumer.OrderKey, MaxMessageBytes: 1000, MaxHeaderBytes: 256 << 10, DeadLetter: &consumer.DeadLetter{Publisher: letters,
			Topic: "dead"},
		Retry: consumer.Retry{MaxAttempts: 3, Backoff: consumer.Backoff{Initial: 2 * time.Second, Jitter: -1}},
		Handler: func(_ context.Context, m *consumer.Message) error {
			if string(m.Key) != "k" {
				mu.Lock()
				defer mu.Unlock()
				others++
				return nil
			}
			note(string(m.Value))
			if string(m.Value) == "bad" {
				return bad.err
			}
			return nil
		}})
	time.Sleep(time.Second)
	mu.Lock()
	if others != 100 {
		t.Errorf("%d of 100 messages of other keys are handled within a second", others)
	}
	mu.Unlock()
	time.Sleep(time.Minute)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	want := append(slices.Repeat([]string{"bad"}, bad.runs), "letter", "k1", "k2")
	if !slices.Equal(story, want) {
		t.Errorf("of its key there were %q, want %q", story, want)
	}
	bad.stored(t, b.Messages("dead"))
	wantUnsettled(t, b, 0)
}

// produce writes it, two good ones of its key, and 100 of other keys.
func (bad badInput) produce(t *testing.T, b *membroker.Broker) {
	t.Helper()
	bad.message.Topic, bad.message.Key = "in", []byte("k")
	all := []broker.Outgoing{bad.message, {Topic: "in", Key: []byte("k"), Value: []byte("k1")},
		{Topic: "in", Key: []byte("k"), Value: []byte("k2")}}
	for i := range 100 {
		key := fmt.Appendf(nil, "other%d", i)
		all = append(all, broker.Outgoing{Topic: "in", Key: key, Value: key})
	}
	if err := b.Produce(all...); err != nil {
		t.Fatal(err)
	}
}

// stored checks the dead letter.
func (bad badInput) stored(t *testing.T, dead []broker.Message) {
	t.Helper()
	if len(dead) != 1 || !bytes.Equal(dead[0].Value, bad.message.Value) || string(dead[0].Key) != "k" {
		t.Fatalf("%d dead letters", len(dead))
	}
	for key, want := range map[string]string{broker.HeaderErrorClass: bad.class, broker.HeaderAttempts: fmt.Sprint(bad.runs),
		broker.HeaderOriginalTopic: "in"} {
		var got []string
		for k, v := range dead[0].Headers.All() {
			if k == key {
				got = append(got, string(v))
			}
		}
		if !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q alone", key, got, want)
		}
	}
	own := 0
	for k := range dead[0].Headers.All() {
		if slices.ContainsFunc(bad.message.Headers, func(h broker.Header) bool { return h.Key == k }) {
			own++
		}
	}
	if len(bad.message.Headers) > 1000 && own < 10_000 {
		t.Errorf("%d of its headers are there", own)
	}
}
