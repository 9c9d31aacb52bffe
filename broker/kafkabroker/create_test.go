package kafkabroker

import (
	"errors"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

// TestDestinations: a publisher knows whether a topic is there, makes one that keeps its messages, and takes messages for it at once; a second time is no error.
func TestDestinations(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	p := ts.publisher(t).(broker.Destinations)
	if err := p.Find(t.Context(), ts.topics[0]); err != nil {
		t.Errorf("a topic that is there: %v", err)
	}
	if err := p.Find(t.Context(), "dead"); !errors.Is(err, broker.ErrNoTopic) {
		t.Errorf("one that is not: %v", err)
	}
	for range 2 {
		if err := p.Create(t.Context(), "dead"); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Find(t.Context(), "dead"); err != nil {
		t.Errorf("one that was made: %v", err)
	}
	if err := p.(broker.Publisher).Publish(t.Context(), []broker.Outgoing{{Topic: "dead", Value: []byte("v")}}); err != nil {
		t.Error(err)
	}
	if ti := ts.cluster.TopicInfo("dead"); ti == nil || ti.Configs["retention.ms"] == nil || *ti.Configs["retention.ms"] != "-1" {
		t.Errorf("the topic is %+v", ti)
	}
	if err := p.Create(t.Context(), "__state"); !errors.Is(err, broker.ErrReserved) {
		t.Errorf("Kafka's own: %v", err)
	}
	_ = p.(broker.Publisher).Close(t.Context())
	if err := p.Find(t.Context(), "dead"); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
