package kafkabroker_test

import (
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
)

func TestReads(t *testing.T) {
	source := func(at string, c kafkabroker.Config) *kafkabroker.Source {
		c.Brokers, c.Group = []string{at, "c:3"}, "g"
		s, err := kafkabroker.NewSource(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(t.Context()) })
		return s
	}
	p, err := kafkabroker.NewPublisher(kafkabroker.PublisherConfig{
		Connection: kafkabroker.Connection{Brokers: []string{"a:1", "b:2"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	for name, c := range map[string]struct {
		s    *kafkabroker.Source
		p    broker.Publisher
		want bool
	}{
		"its own topic":     {source("a:1", kafkabroker.Config{Topics: []string{"x", "dead"}}), p, true},
		"by a pattern":      {source("b:2", kafkabroker.Config{Pattern: "de.*"}), p, true},
		"another topic":     {source("a:1", kafkabroker.Config{Topics: []string{"x"}}), p, false},
		"another cluster":   {source("z:9", kafkabroker.Config{Topics: []string{"dead"}}), p, false},
		"another publisher": {source("a:1", kafkabroker.Config{Topics: []string{"dead"}}), nil, false},
	} {
		if got := c.s.Reads(c.p, "dead"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
