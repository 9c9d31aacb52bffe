package natsbroker

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

func TestReads(t *testing.T) {
	source := func(url string, c Config) *Source {
		c.URLs, c.Stream, c.Consumer = []string{url}, "S", "c"
		s, err := NewSource(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(t.Context()) })
		return s
	}
	p, err := NewPublisher(PublisherConfig{Connection: Connection{URLs: []string{"nats://a:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	for name, c := range map[string]struct {
		s    *Source
		p    broker.Publisher
		want bool
	}{
		"its own subject":   {source("nats://a:1", Config{Subjects: []string{"orders.>"}}), p, true},
		"another subject":   {source("nats://a:1", Config{Subjects: []string{"payments.>"}}), p, false},
		"another server":    {source("nats://b:1", Config{Subjects: []string{"orders.>"}}), p, false},
		"another publisher": {source("nats://a:1", Config{Subjects: []string{"orders.>"}}), nil, false},
		"a stream it creates": {source("nats://a:1", Config{CreateStream: &jetstream.StreamConfig{Name: "S",
			Subjects: []string{"orders.*"}}}), p, true},
		"nobody knows": {source("nats://a:1", Config{}), p, false},
	} {
		if got := c.s.Reads(c.p, "orders.dead"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
