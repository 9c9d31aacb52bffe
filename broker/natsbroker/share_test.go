package natsbroker_test

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// TestShareWithoutRights: a user that may not tell others that it is there, or not hear them, would call as if it were alone. It
// is said at the start, with the subject that it needs.
func TestShareWithoutRights(t *testing.T) {
	t.Parallel()
	const subject = "longshore.share.S.c"
	deny := &server.SubjectPermission{Deny: []string{"longshore.>"}}
	for what, may := range map[string]server.Permissions{"publish": {Publish: deny}, "subscribe": {Subscribe: deny}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ts := startServer(t, fewOfThatWord(may))
			ts.admin(nats.UserInfo("all", "word")).stream()
			cfg := config(ts.url())
			cfg.Share = true
			asFew(&cfg.Connection)
			s, err := natsbroker.NewSource(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: (&events{}).observe})
			if err == nil || !strings.Contains(err.Error(), "subscribe to "+subject+": nats: permissions violation") {
				t.Errorf("Open: %v, want that %s is not allowed", err, subject)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestShareInOrder: with an order one process at a time has the work, and so all of the share.
func TestShareInOrder(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	a.publish(1, 5)
	cfg := config(ts.url())
	cfg.Share = true
	first := open(t, cfg, inOrder)
	_ = receive(t, first, 5)
	second := open(t, cfg, inOrder)
	if s, err := first.Share(); err != nil || s.Part() != 1 {
		t.Errorf("%+v, %v: want all for the one whose turn it is", s, err)
	}
	if s, err := second.Share(); err != nil || s.Held != 0 {
		t.Errorf("%+v, %v: want nothing for the one that stands by", s, err)
	}
}

// TestShareNotAskedFor: who does not tell others that it is there cannot say which part it has.
func TestShareNotAskedFor(t *testing.T) {
	t.Parallel()
	s, err := natsbroker.NewSource(config("nats://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Share(); err == nil || !strings.Contains(err.Error(), "Config.Share is not set") {
		t.Errorf("Share: %v, want what is to be set", err)
	}
}
