package kafkabroker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// TestMissingTopic: one of several topics that is not there at the start is waited for and told of, while the others are
// consumed; or it is an error, where that is wanted. A pattern that matches nothing is waited for in the group.
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

// TestNoTopicAtAll: where none of the topics is there, Open waits for one, out of the group, tells of it once, and begins at the
// beginning of what is made meanwhile. Who gives up is told what it waited for.
func TestNoTopicAtAll(t *testing.T) {
	t.Parallel()
	var looks, joins atomic.Int32
	c := startCluster(t)
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		looks.Add(1)
		return nil, nil, false
	})
	c.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		joins.Add(1)
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	open := func(ctx context.Context, cfg Config) (*Source, chan broker.Event, chan error) {
		cfg.Brokers, cfg.Poll = c.ListenAddrs(), 20*time.Millisecond
		s, err := NewSource(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.WithoutCancel(ctx)) })
		told, opened := make(chan broker.Event, 100), make(chan error, 1)
		go func() {
			_, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1 << 20},
				Observe: func(e broker.Event) { told <- e }})
			opened <- err
		}()
		return s, told, opened
	}
	waits := func(told chan broker.Event, opened chan error, topics ...string) {
		t.Helper()
		for range topics { // in the order in which the broker names them
			e := <-told
			names := func(topic string) bool {
				return e.Err != nil && strings.Contains(e.Err.Error(), "topic "+topic+" does not exist: waiting for it")
			}
			if e.Kind != broker.Warning || !slices.ContainsFunc(topics, names) {
				t.Fatalf("told %v: %v", e.Kind, e.Err)
			}
		}
		before := looks.Load()
		eventually(t, "it looks again and again", func() bool { return looks.Load() > before+10 || len(opened) > 0 })
		if len(opened) > 0 || joins.Load() > 0 {
			t.Fatalf("it is in the group (%d requests to join), and Open has returned (%d)", joins.Load(), len(opened))
		}
	}

	brief, give := context.WithCancel(ctx)
	_, told, opened := open(brief, Config{Group: "g", Topics: []string{"t"}})
	waits(told, opened, "t")
	give()
	if err := <-opened; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "topic t does not exist") {
		t.Errorf("given up: %v", err)
	}
	s, told, opened := open(ctx, Config{Group: "g", Topics: []string{"t"}})
	waits(told, opened, "t")
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := <-opened; !errors.Is(err, broker.ErrClosed) {
		t.Errorf("closed: %v", err)
	}

	s, told, opened = open(ctx, Config{Group: "g", Topics: []string{"t", "u"}, Start: Start{At: "latest"}})
	waits(told, opened, "t", "u")
	admin, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	createTopic(t, admin, "t", 1)
	seed(t, c)
	if err := <-opened; err != nil {
		t.Fatalf("Open, when one of them is there: %v", err)
	}
	ms := make([]broker.Message, 1)
	if n, err := s.Receive(ms); n != 1 || err != nil {
		t.Errorf("Receive: %d, %v", n, err)
	}
	for len(told) > 0 {
		if e := <-told; e.Kind == broker.Warning || e.Kind == broker.Down {
			t.Errorf("told %v: %v", e.Kind, e.Err)
		}
	}
}

// TestRunsWithoutTopic: where it is wanted, the group is joined though none of the topics is there.
func TestRunsWithoutTopic(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	s, err := NewSource(Config{Connection: Connection{Brokers: c.ListenAddrs()}, Group: "g", Topics: []string{"t"}, Missing: "run"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	defer func() { _ = s.Close(ctx) }()
	told := make(chan broker.Event, 100)
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1 << 20},
		Observe: func(e broker.Event) { told <- e }})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-told; e.Kind != broker.Warning || !strings.Contains(e.Err.Error(), "topic t does not exist: waiting for it") {
		t.Errorf("told %v: %v", e.Kind, e.Err)
	}
}

// TestBrokerAwayWhileNoTopic: when the brokers are back, after they were away while Open waited for a topic, that is told, and
// then once more what is waited for: it is the last that the source said.
func TestBrokerAwayWhileNoTopic(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	c := startCluster(t)
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if away.Load() {
			return nil, errors.New("away"), true
		}
		return nil, nil, false
	})
	s, err := NewSource(Config{Connection: Connection{Brokers: c.ListenAddrs()}, Group: "g", Topics: []string{"t", "u"},
		Poll: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	told, opened := make(chan broker.Event, 1000), make(chan error, 1)
	go func() {
		_, err := s.Open(t.Context(), broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1 << 20},
			Observe: func(e broker.Event) { told <- e }})
		opened <- err
	}()
	next := func(want broker.Kind) (e broker.Event) {
		t.Helper()
		for e = <-told; want != broker.Down && e.Kind == broker.Down; { // it is told again while it lasts
			e = <-told
		}
		if e.Kind != want {
			t.Fatalf("told %v (%v), want %v", e.Kind, e.Err, want)
		}
		return e
	}
	next(broker.Warning)
	next(broker.Warning)
	away.Store(true)
	next(broker.Down)
	away.Store(false)
	next(broker.Up)
	if e := next(broker.Warning); !strings.Contains(e.Err.Error(), "none of the topics t, u exists: waiting for one") {
		t.Errorf("told %v", e.Err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-opened; !errors.Is(err, broker.ErrClosed) {
		t.Errorf("Open: %v", err)
	}
}
