package kafkabroker

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/longshoremq/longshore/broker"
)

// TestMissingTopic: a topic that is not there at the start is waited for and told of, while the others are consumed; or it is an
// error, where that is wanted.
func TestMissingTopic(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.SeedTopics(1, "t"))
	for name, cfg := range map[string]Config{"topics": {Topics: []string{"t", "later"}}, "pattern": {Pattern: "later.*"}} {
		for _, missing := range []string{"stop", "wait"} {
			t.Run(name+"/"+missing, func(t *testing.T) {
				cfg := cfg
				cfg.Brokers, cfg.Group, cfg.Missing = c.ListenAddrs(), name, missing
				s, err := NewSource(cfg)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				defer func() { _ = s.Close(ctx) }()
				told := make(chan error, 100)
				_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1 << 20}, Observe: func(e broker.Event) {
					if e.Kind == broker.Warning {
						told <- e.Err
					}
				}})
				if missing == "stop" {
					if !errors.Is(err, broker.ErrNoTopic) || !strings.Contains(err.Error(), "later") || len(told) > 0 {
						t.Errorf("Open: %v, and %d warnings", err, len(told))
					}
					return
				}
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				if err := <-told; !strings.Contains(err.Error(), "later") || !strings.Contains(err.Error(), "waiting") {
					t.Errorf("told %v", err)
				}
			})
		}
	}
	if _, err := NewSource(Config{Group: "g", Topics: []string{"t"}, Missing: "never"}); err == nil ||
		!strings.Contains(err.Error(), "Missing") {
		t.Errorf("NewSource: %v", err)
	}
}
