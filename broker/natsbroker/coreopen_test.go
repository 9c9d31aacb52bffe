package natsbroker_test

import (
	"context"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// A core source that loses its server while it opens tries on, as every other.
func TestCoreOpenWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	ts := startServer(t, noJetStream)
	cfg := natsbroker.CoreConfig{Connection: config(ts.url()).Connection, Subjects: []string{"s.*", "t"}, Queue: "q"}
	cfg.DialTimeout = 100 * time.Millisecond
	s, err := natsbroker.NewCoreSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSource(t, s) })
	ev := &events{}
	down := func() bool { return len(ev.of(broker.Down)) > 0 }
	opened := make(chan error, 1)
	go func() {
		_, err := s.Open(context.Background(), broker.Options{Budget: broker.Budget{Messages: 100, Bytes: 1 << 20}, Observe: ev.observe,
			Await: func(context.Context) error {
				ts.down()
				eventually(t, "Down is told", down)
				return nil
			}})
		opened <- err
	}()
	eventually(t, "Down is told", down)
	select {
	case err := <-opened:
		t.Fatalf("Open: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	ts.up()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	corePublish(t, ts.admin().nc, 10)
	ack(t, s, receive(t, s, 10)...)
}

// A core source that cannot join within its time tells Down, and the end of it when the server answers, also where it is paused
// by then.
func TestCoreUpAfterASlowServer(t *testing.T) {
	for name, next := range map[string]func(*openedCore) error{
		"resumed":          func(*openedCore) error { return nil },
		"and paused again": func(s *openedCore) error { return s.Pause() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startServer(t, noJetStream)
			p := startProxy(t, ts.opts.Port)
			cfg := natsbroker.CoreConfig{Connection: config(p.url()).Connection, Subjects: []string{"s.*", "t"}, Queue: "q"}
			cfg.DialTimeout = 200 * time.Millisecond
			s := openCoreOf(t, cfg, broker.Budget{Messages: 100, Bytes: 1 << 20})
			subs := ts.srv.NumSubscriptions()
			if err := s.Pause(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it left the group", func() bool { return ts.srv.NumSubscriptions() == subs-2 })
			p.cut(toClient)
			if err := s.Resume(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "Down is told", func() bool { return len(s.events.of(broker.Down)) > 0 })
			if err := next(s); err != nil {
				t.Fatal(err)
			}
			ups := len(s.events.of(broker.Up))
			p.heal()
			eventually(t, "Up is told", func() bool { return len(s.events.of(broker.Up)) > ups })
		})
	}
}
