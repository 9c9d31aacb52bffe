package natsbroker_test

import (
	"os"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// A file of authorities that is renewed while a source runs is read by the next connect: a server whose certificate is of the new
// authority alone is believed. Until then it is said why it is not.
func TestAuthoritiesAreRenewed(t *testing.T) {
	t.Parallel()
	before, next := newAuthority(t, "before"), newAuthority(t, "next")
	ts := startServer(t, serveAs(before))
	a := ts.admin(nats.RootCAs(before.ca()))
	a.stream()
	s := open(t, ts.as(natsbroker.Connection{TLS: natsbroker.TLS{CAFile: before.ca()}}))
	a.publish(1, 3)
	ack(t, s, receive(t, s, 3)...)
	ts.down()
	serveAs(next)(ts.opts)
	ts.up()
	told(t, s.events, "unknown authority")
	renewed := must(os.ReadFile(next.ca()))
	if err := os.WriteFile(before.ca(), renewed, 0o600); err != nil {
		t.Fatal(err)
	}
	ts.admin(nats.RootCAs(next.ca())).publish(4, 6)
	ack(t, s, receive(t, s, 3)...)
}

// A seed that is replaced while a source runs is read by the next connect, as a file of creds is.
func TestSeedIsReplaced(t *testing.T) {
	t.Parallel()
	seed, public := userKey(t)
	user := func(public string) []*server.NkeyUser { return []*server.NkeyUser{{Nkey: public}} }
	ts := startServer(t, func(o *server.Options) { o.Nkeys = user(public) })
	a := ts.admin(must(nats.NkeyOptionFromSeed(seed)))
	a.stream()
	s := open(t, ts.as(natsbroker.Connection{NKeySeedFile: seed}))
	a.publish(1, 3)
	ack(t, s, receive(t, s, 3)...)
	ts.down()
	next := must(nkeys.CreateUser())
	ts.opts.Nkeys = user(must(next.PublicKey()))
	ts.up()
	eventually(t, "its seed is refused", func() bool { return len(s.events.of(broker.Down)) > 0 })
	if err := os.WriteFile(seed, must(next.Seed()), 0o600); err != nil {
		t.Fatal(err)
	}
	ts.admin(must(nats.NkeyOptionFromSeed(seed))).publish(4, 6)
	ack(t, s, receive(t, s, 3)...)
}
