package kafkabroker

import (
	"context"
	"strings"
	"testing"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// TestOtherBalancer: a process comes with a balancer that the members of its group do not have, as in a rolling change of it. The
// group refuses it, and Open says which setting that is for, and what the group has; those that run go on.
func TestOtherBalancer(t *testing.T) {
	onEach(t, 1, func(t *testing.T, ts *testSystem) {
		with := func(balancer string) Config {
			cfg := ts.config(ts.net.link())
			cfg.Balancer, cfg.plan = balancer, nil
			return cfg
		}
		r := startRunner(t, with("range"))
		want := ts.put(t, ts.topics[0], 0, 3)
		eventually(t, "the first one has all", func() bool { return r.has(want) })
		s, err := NewSource(with("sticky"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close(context.Background()) }()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(broker.Event) {}})
		for _, part := range []string{`Balancer is "sticky"`, ts.group, `"range"`} {
			if err == nil || !strings.Contains(err.Error(), part) || codeOf(err) != kafka.InconsistentGroupProtocol {
				t.Errorf("Open returned %v, want %s in it", err, part)
			}
		}
		want = append(want, ts.put(t, ts.topics[0], 3, 3)...)
		eventually(t, "the first one goes on", func() bool { return r.has(want) })
	})
}
