package natsbroker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// ownInbox are the rights that SECURITY.md advises: for what a consumer reads and publishes, and to listen at its own inbox.
var ownInbox = server.Permissions{
	Publish: &server.SubjectPermission{Allow: []string{"$JS.API.CONSUMER.INFO.S.c", "$JS.API.CONSUMER.MSG.NEXT.S.c",
		"$JS.API.CONSUMER.UNPIN.S.c", "$JS.API.STREAM.INFO.S", "$JS.API.STREAM.MSG.GET.S", "$JS.ACK.S.c.>", "dead.s",
		"$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.D", "$JS.API.STREAM.MSG.GET.D"}},
	Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_few.>"}},
}

// Whoever may subscribe to an inbox prefix of its own, and to nothing else, can do all that a consumer does.
func TestInboxPrefix(t *testing.T) {
	t.Parallel()
	ts := startServer(t, fewMay(ownInbox))
	a := ts.admin(nats.UserInfo("all", "word"))
	a.stream()
	if _, err := a.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "D", Subjects: []string{"dead.>"}}); err != nil {
		t.Fatal(err)
	}
	cfg := pinConfig(ts.url())
	cfg.User, cfg.Password, cfg.InboxPrefix = "few", broker.NewSecret("word"), "_INBOX_few"
	if _, err := a.js.CreateConsumer(t.Context(), "S", cfg.Durable(true)); err != nil {
		t.Fatal(err)
	}
	s, next := open(t, cfg, inOrder), open(t, cfg, inOrder)
	a.publish(1, 3)
	p := newPublisher(t, ts.url(), func(c *natsbroker.PublisherConfig) { c.Connection = cfg.Connection })
	for _, m := range receiveOfEither(t, s, next) {
		if err := one(t, p, broker.Outgoing{Topic: "dead.s", Value: m.Value}); err != nil {
			t.Fatal(err)
		}
	}
	a.publish(4, 4)
	if err := one(t, p, broker.Outgoing{Topic: "_INBOX_few.x"}); !errors.Is(err, broker.ErrReserved) {
		t.Errorf("a publish to the inbox: %v", err)
	}
	view := must(natsbroker.NewLagView(natsbroker.LagViewConfig{Connection: cfg.Connection, Stream: "S", Consumer: "c"}))
	defer view.Close()
	eventually(t, "the lag can be read", func() bool { return must(view.Read(t.Context())).Committed == 3 })
	letters := must(natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: cfg.Connection}))
	defer letters.Close()
	n := 0
	count := func(*broker.Message) error { n++; return nil }
	if _, err := letters.Scan(t.Context(), broker.Scan{Topic: "dead.s"}, count); err != nil {
		t.Error(err)
	}
	if n != 3 {
		t.Errorf("%d dead letters are read", n)
	}
	for _, w := range append(s.events.of(broker.Warning), next.events.of(broker.Warning)...) {
		if strings.Contains(w.Err.Error(), "ermission") {
			t.Error(w.Err)
		}
	}
}

// receiveOfEither acks and returns three messages of whichever is pinned, and closes that one: the other has its turn then.
func receiveOfEither(t *testing.T, s, next *opened) []broker.Message {
	t.Helper()
	eventually(t, "one has its turn", func() bool {
		return len(s.events.of(broker.Assigned))+len(next.events.of(broker.Assigned)) > 0
	})
	if len(s.events.of(broker.Assigned)) == 0 {
		s, next = next, s
	}
	ms := receive(t, s, 3)
	ack(t, s, ms...)
	closeSource(t, s)
	return ms
}

func TestInboxPrefixesThatNoServerTakes(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{"": "", "_INBOX": "", "in.few": "", "in.": "empty token", ".in": "empty token",
		"in..few": "empty token", "in.*": "no wildcards", "in few": "blanks", "$JS": "the server's own"} {
		_, err := natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: natsbroker.Connection{InboxPrefix: prefix}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", prefix, err, want)
		}
	}
}
