package kafkabroker

import (
	"testing"

	"github.com/longshoremq/longshore/broker"
)

func TestReads(t *testing.T) {
	source := func(at string, c Config) *Source {
		c.Brokers, c.Group = []string{at, "c:3"}, "g"
		s, err := NewSource(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(t.Context()) })
		return s
	}
	p, err := NewPublisher(PublisherConfig{Connection: Connection{Brokers: []string{"a:1", "b:2"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	for name, c := range map[string]struct {
		s    *Source
		p    broker.Publisher
		want bool
	}{
		"its own topic":     {source("a:1", Config{Topics: []string{"x", "dead"}}), p, true},
		"by a pattern":      {source("b:2", Config{Pattern: "de.*"}), p, true},
		"another topic":     {source("a:1", Config{Topics: []string{"x"}}), p, false},
		"another cluster":   {source("z:9", Config{Topics: []string{"dead"}}), p, false},
		"another publisher": {source("a:1", Config{Topics: []string{"dead"}}), nil, false},
	} {
		if got := c.s.Reads(c.p, "dead"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
