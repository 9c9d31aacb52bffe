package natsbroker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// A server whose JetStream has ended still answers: connections stay, and each pull is told that nobody is there. Who looks at
// the source is told, too, though nothing is to be pulled or settled.
func TestJetStreamEndsAlone(t *testing.T) {
	t.Parallel()
	for name, budget := range map[string]int{"with a pull": 100, "with a full budget": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			a.publish(1, 3)
			s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget.Messages = budget })
			ms := receive(t, s, 3)
			eventually(t, "it is up", func() bool { return len(s.events.of(broker.Up)) == 1 })
			if err := ts.srv.DisableJetStream(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is down", func() bool { return len(s.events.of(broker.Down)) > 0 })
			pass(t, 2*time.Second, "it stayed so")
			if n := len(s.events.of(broker.Up)); n != 1 {
				t.Errorf("it was told %d times that it is up, while nothing was", n-1)
			}
			ts.down()
			ts.up()
			a.again()
			eventually(t, "it is up again", func() bool { return len(s.events.of(broker.Up)) > 1 })
			ack(t, s, ms...)
			a.settled()
		})
	}
}

// A process that starts while the server is away that has the stream waits for it, as it waits for one that it cannot reach.
func TestOpenWhileTheStreamIsOffline(t *testing.T) {
	t.Parallel()
	servers := startCluster(t)
	a := servers[0].admin()
	a.stream()
	home := must(a.js.Stream(t.Context(), "S")).CachedInfo().Cluster.Leader
	at := slices.IndexFunc(servers, func(ts *testServer) bool { return ts.opts.ServerName == home })
	near := servers[(at+1)%3]
	js := near.admin().js
	servers[at].down()
	eventually(t, "the stream is offline", func() bool {
		_, err := js.Stream(t.Context(), "S")
		var api *jetstream.APIError
		return errors.As(err, &api) && api.ErrorCode == 10118
	})
	s, ev := must(natsbroker.NewSource(config(near.url()))), &events{}
	t.Cleanup(func() { closeSource(t, s) })
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	opened := make(chan error, 1)
	go func() {
		_, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: ev.observe})
		opened <- err
	}()
	eventually(t, "it is told", func() bool { return len(opened) > 0 || len(ev.of(broker.Down)) > 0 })
	servers[at].up()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
}
