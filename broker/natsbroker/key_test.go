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

// TestKeyOfTheDefaultHeader: to write the default out changes nothing. A key that is no line of text is in another header there,
// and would be none: its messages would lose their order.
func TestKeyOfTheDefaultHeader(t *testing.T) {
	m := &nats.Msg{Header: nats.Header{headerKeyBase64: {"YQpi"}}}
	written := Config{KeyHeader: broker.HeaderKey}
	for _, c := range []Config{{}, written} {
		if got := c.key(m); string(got) != "a\nb" {
			t.Errorf("with the header %q the key is %q, want %q", c.KeyHeader, got, "a\nb")
		}
	}
	m.Header.Set(broker.HeaderKey, "c")
	if got := written.key(m); string(got) != "c" {
		t.Errorf("the key is %q, want c", got)
	}
}
