package kafkabroker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/longshoremq/longshore/broker"
)

// TestFullGroup: the group has as many members as the broker allows. Who is one too many is told so by the error's name.
func TestFullGroup(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1, kfake.BrokerConfigs(map[string]string{"group.max.size": "1"}))
	cfg := ts.config(ts.net.link())
	first := startRunner(t, cfg)
	want := ts.put(t, ts.topics[0], 0, 3)
	eventually(t, "the first one has all", func() bool { return first.has(want) })
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	const name = "GROUP_MAX_SIZE_REACHED"
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1 << 20}, Observe: func(broker.Event) {}})
	if err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("Open returned %v, want %s", err, name)
	}
}
