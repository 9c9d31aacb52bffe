package natsbroker_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// startLeaf makes a server with the JetStream domain hub, and a leaf node of it with the domain leaf.
func startLeaf(t *testing.T) (hub, leaf *testServer) {
	t.Helper()
	at := freePort(t)
	hub = startServer(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", at
	})
	leaf = startServer(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "leaf", "leaf"
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{must(url.Parse(fmt.Sprintf("nats-leaf://127.0.0.1:%d", at)))}}}
	})
	eventually(t, "they are connected", func() bool { return hub.srv.NumLeafNodes() == 1 })
	return hub, leaf
}

// Who is connected to a leaf node reads a stream of the hub; its dead letters are looked for, and created, there. While the hub
// is away nothing is refused for good: its streams come again.
func TestDomainOfALeafNode(t *testing.T) {
	t.Parallel()
	hub, leaf := startLeaf(t)
	a, l := hub.admin(), leaf.admin()
	a.stream()
	for name, js := range map[string]jetstream.JetStream{"HUB": a.js, "LEAF": l.js} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{"dead." + name}}); err != nil {
			t.Fatal(err)
		}
	}
	cfg := pinConfig(leaf.url())
	cfg.Domain = "hub"
	s := open(t, cfg, inOrder)
	a.publish(1, 3)
	ack(t, s, receive(t, s, 3)...)
	a.settled()
	p := newPublisher(t, leaf.url(), func(c *natsbroker.PublisherConfig) { c.Domain = "hub" })
	for _, subject := range []string{"dead.HUB", "dead.LEAF"} {
		if err := one(t, p, broker.Outgoing{Topic: subject}); err != nil {
			t.Error(err)
		}
		if err := p.Find(t.Context(), subject); err != nil {
			t.Error(err)
		}
	}
	if err := p.Find(t.Context(), "dead.none"); !errors.Is(err, broker.ErrNoTopic) {
		t.Errorf("where there is none: %v", err)
	}
	if err := one(t, p, broker.Outgoing{Topic: "dead.none"}); !errors.Is(err, broker.ErrRefused) {
		t.Errorf("where there is none: %v", err)
	}
	if err := p.Create(t.Context(), "dead.new"); err != nil {
		t.Error(err)
	}
	if _, err := a.js.Stream(t.Context(), "dead_new"); err != nil {
		t.Errorf("at the hub: %v", err)
	}
	hub.down()
	eventually(t, "the hub is away", func() bool { return leaf.srv.NumLeafNodes() == 0 })
	if err := one(t, p, broker.Outgoing{Topic: "dead.HUB"}); err == nil || errors.Is(err, broker.ErrRefused) {
		t.Errorf("while the hub is away: %v", err)
	}
	hub.up()
	eventually(t, "it is back", func() bool { return one(t, p, broker.Outgoing{Topic: "dead.HUB"}) == nil })
}

// Who waits for a stream of the hub has heard of the hub's JetStream, and waits on while the hub is away.
func TestHubGoesWhileAStreamIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, began := range map[string]bool{"at the start": false, "with Recreate": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub, leaf := startLeaf(t)
			a := hub.admin()
			if began {
				a.stream()
			}
			cfg := config(leaf.url())
			cfg.Domain, cfg.Recreate = "hub", true
			s, ev := must(natsbroker.NewSource(cfg)), &events{}
			t.Cleanup(func() { closeSource(t, s) })
			opened := make(chan error, 1)
			go func() {
				_, err := s.Open(t.Context(), broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: ev.observe})
				opened <- err
			}()
			if began {
				if err := errors.Join(<-opened, a.js.DeleteStream(t.Context(), "S")); err != nil {
					t.Fatal(err)
				}
				opened <- nil
			}
			a.asked("STREAM.INFO.S", 3)
			hub.down()
			pass(t, 3*time.Second, "nobody answers")
			hub.up()
			a.again()
			a.stream()
			a.publish(1, 3)
			if err := <-opened; err != nil {
				t.Fatal(err)
			}
			ack(t, s, receive(t, s, 3)...)
			a.settled()
		})
	}
}

// It is the hub that pins: an older leaf node, which could not, is only on the way to it.
func TestOrderOverAnOlderLeafNode(t *testing.T) {
	t.Parallel()
	hub, leaf := startLeaf(t)
	a := hub.admin()
	a.stream()
	p := startProxy(t, leaf.opts.Port)
	p.rewrite(func(b []byte) {
		if i := bytes.Index(b, []byte(`"version":"2.1`)); i >= 0 {
			b[i+len(`"version":"2.1`)] = '0'
		}
	})
	cfg := pinConfig(p.url())
	cfg.Domain = "hub"
	s := open(t, cfg, inOrder)
	if !s.traits.Ordered {
		t.Error("there is no order")
	}
	a.publish(1, 3)
	inStreamOrder(t, s, 1, 3)
	a.settled()
}
