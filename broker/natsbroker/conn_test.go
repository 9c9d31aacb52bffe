package natsbroker

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

func TestPause(t *testing.T) {
	c := Connection{ReconnectWait: 100 * time.Millisecond, MaxReconnectWait: 2 * time.Second}
	for n := range 100 {
		d := c.pause(n)
		if full := min(100*time.Millisecond<<min(max(n-1, 0), 16), 2*time.Second); d < full/2 || d > full {
			t.Fatalf("pause %d is %v, of %v", n, d, full)
		}
	}
}

func TestMayDial(t *testing.T) {
	word := Connection{User: "u", Password: broker.NewSecret("x")}
	with := func(c Connection, urls ...string) Connection { c.URLs = urls; return c }
	allowed, byTLS := word, word
	allowed.PlaintextAuth, byTLS.TLS.Enabled = true, true
	for name, c := range map[string]struct {
		c    Connection
		at   string
		want bool
	}{
		"this machine":      {with(word, "nats://127.0.0.1:4222"), "127.0.0.1:1", true},
		"this machine, v6":  {with(word, "nats://localhost:4222"), "[::1]:1", true},
		"another":           {with(word, "nats://127.0.0.1:4222"), "192.0.2.1:4222", false},
		"another, by name":  {with(word, "ws://127.0.0.1:4222"), "elsewhere:4222", false},
		"no address":        {with(word, "nats://127.0.0.1:4222"), "localhost", false},
		"a token":           {Connection{Token: broker.NewSecret("x")}, "192.0.2.1:4222", false},
		"in a URL":          {with(Connection{}, "u:x@127.0.0.1", "u:x@localhost"), "192.0.2.1:4222", false},
		"in a URL, TLS":     {with(Connection{}, "tls://u:x@127.0.0.1"), "192.0.2.1:4222", true},
		"allowed":           {allowed, "192.0.2.1:4222", true},
		"TLS":               {byTLS, "192.0.2.1:4222", true},
		"TLS by URL":        {with(word, "nats://127.0.0.1", "TLS://192.0.2.1"), "192.0.2.9:4222", true},
		"TLS of websockets": {with(word, "wss://192.0.2.1"), "192.0.2.9:4222", true},
		"nothing secret":    {Connection{NKeySeedFile: "f"}, "192.0.2.1:4222", true},
	} {
		if err := c.c.mayDial(c.at); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
