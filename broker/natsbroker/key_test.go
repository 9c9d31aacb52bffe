package natsbroker

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

func TestKey(t *testing.T) {
	header := nats.Header{broker.HeaderKey: {"ours"}, "Customer": {"first", "last"}, "Empty": {""}}
	for _, c := range []struct {
		cfg     Config
		subject string
		want    string
		none    bool
	}{
		{Config{}, "a.b", "ours", false},
		{Config{KeyHeader: "Customer"}, "a.b", "last", false},
		{Config{KeyHeader: "customer"}, "a.b", "", true},
		{Config{KeyHeader: "Empty"}, "a.b", "", false},
		{Config{KeyToken: 1}, "a.b.c", "a", false},
		{Config{KeyToken: 2}, "a.b.c", "b", false},
		{Config{KeyToken: 3}, "a.b.c", "c", false},
		{Config{KeyToken: 4}, "a.b.c", "", true},
		{Config{KeyToken: -1}, "a.b.c", "c", false},
		{Config{KeyToken: -3}, "a.b.c", "a", false},
		{Config{KeyToken: -4}, "a.b.c", "", true},
		{Config{KeyToken: 1}, "a", "a", false},
	} {
		got := c.cfg.key(&nats.Msg{Subject: c.subject, Header: header})
		if string(got) != c.want || (got == nil) != c.none {
			t.Errorf("%q %d of %s: %q, want %q", c.cfg.KeyHeader, c.cfg.KeyToken, c.subject, got, c.want)
		}
	}
}
