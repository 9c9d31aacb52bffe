package natsbroker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// A lame server answers for minutes, and has no consumers any more: what was acked meanwhile is acked again when they are there.
func TestAcksToALameServer(t *testing.T) {
	t.Parallel()
	ts := startServer(t, func(o *server.Options) { o.LameDuckGracePeriod, o.LameDuckDuration = -time.Hour, 2*time.Hour })
	a := ts.admin()
	a.stream()
	a.publish(1, 40)
	cfg := config(ts.url())
	cfg.AckWait = 24 * time.Second // longer than patience
	s := open(t, cfg)
	out := receive(t, s, 40)
	ts.lameDown(func() {
		ack(t, s, out...)
		time.Sleep(1500 * time.Millisecond) // the server answers pings
	})
	ts.up()
	a.settled()
	if i := a.info(); i.Delivered.Consumer != 40 {
		t.Errorf("%d deliveries of 40 messages", i.Delivered.Consumer)
	}
}

// A leader that steps down drops acks which it has not come to.
func TestAcksOverLeaders(t *testing.T) {
	t.Parallel()
	servers := startCluster(t)
	a := servers[0].admin()
	a.stream(func(sc *jetstream.StreamConfig) { sc.Replicas = 3 })
	cfg := config(servers[1].url())
	cfg.AckWait = 2 * patience
	s := open(t, cfg)
	rounds, n := 2, 100
	if full() {
		rounds = 5
	}
	for range rounds {
		feed(t, newPublisher(t, servers[2].url()), map[int]int{}, n)
		out, acked := receive(t, s, n), make(chan struct{})
		eventually(t, "whoever leads next knows of these deliveries", func() bool { // or it makes them again
			return !slices.ContainsFunc(a.info().Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Lag > 0 })
		})
		go func() {
			defer close(acked)
			for _, m := range out {
				_ = s.Ack(m.Claim, []uint64{m.Token})
				time.Sleep(100 * time.Microsecond)
			}
		}()
		eventually(t, "the leader steps down", func() bool {
			m, err := a.nc.Request("$JS.API.CONSUMER.LEADER.STEPDOWN.S.c", nil, time.Second)
			return err == nil && strings.Contains(string(m.Data), `"success":true`)
		})
		<-acked
		a.settled()
	}
	if i := a.info(); i.Delivered.Consumer != uint64(rounds*n) {
		t.Errorf("%d deliveries of %d messages", i.Delivered.Consumer, rounds*n)
	}
}

// Nobody gives receipts for acks of a consumer that is no more. Close does not wait for them.
func TestCloseWithoutTheConsumer(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 10)
	cfg := config(ts.url())
	cfg.Poll = time.Hour
	s := open(t, cfg)
	out := receive(t, s, 10)
	s.Stop()
	eventually(t, "no pull is left to be told", func() bool { return a.info().NumWaiting == 0 })
	if err := a.js.DeleteConsumer(context.Background(), "S", "c"); err != nil {
		t.Fatal(err)
	}
	ack(t, s, out...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("Close: %v, %v", err, ctx.Err())
	}
}
