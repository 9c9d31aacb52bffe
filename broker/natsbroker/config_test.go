package natsbroker_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

func TestConfigNamesEveryField(t *testing.T) {
	_, err := natsbroker.NewSource(natsbroker.Config{
		Connection: natsbroker.Connection{
			URLs:     []string{"ftp://x", "nats://", "nats://%zz:hunter2@x"},
			Password: broker.NewSecret("hunter2"), Token: broker.NewSecret("hunter2"), CredsFile: "c", MaxReconnectWait: time.Millisecond,
			TLS: natsbroker.TLS{CertFile: "a"}, DialTimeout: -1,
		},
		Stream: "a.b", AckWait: time.Millisecond, Heartbeat: time.Millisecond, MaxAckPending: -2, Finished: -1, MaxHold: -1,
		Subjects: []string{"a b"}, StartSequence: 4, StartTime: time.Now(), Bind: true, Recreate: true, KeyHeader: "k", KeyToken: 2,
		CreateStream: &jetstream.StreamConfig{Name: "other"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"URLs[0]", "URLs[1]", "URLs[2]", "Token is set, and so is User",
		"CredsFile is set, and so is User", "Password is set and User", "TLS.KeyFile", "DialTimeout",
		"MaxReconnectWait", "Stream", "Consumer", "AckWait", "Heartbeat", "MaxAckPending", "Finished", "MaxHold", "Subjects[0]",
		"StartSequence", "StartTime", "KeyHeader", "Recreate is set, and so is Bind", "CreateStream.Name"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("nothing is said of %s", field)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a password is printed: %v", err)
	}
}

// TestConfigIsWhatAServerTakes: what a server never takes is found before there is one, and not tried for ever.
func TestConfigIsWhatAServerTakes(t *testing.T) {
	good := natsbroker.Config{Connection: natsbroker.Connection{URLs: []string{"nats://h:65535", "h:1", "h"}}, Domain: "hub",
		Stream: strings.Repeat("S", 255), Consumer: "c"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*natsbroker.Config){
		"URLs[0] is nats://u:xxxxx@127.0.0.1:99999: want a port from 1 to 65535": func(c *natsbroker.Config) {
			c.URLs = []string{"nats://u:hunter2@127.0.0.1:99999"}
		},
		"URLs[1] is nats://h:0: want a port":         func(c *natsbroker.Config) { c.URLs = []string{"h", "h:0"} },
		`Subjects[1] is "a..b", which is no subject`: func(c *natsbroker.Config) { c.Subjects = []string{"a", "a..b"} },
		`Subjects[0] is "a.>.b", which`:              func(c *natsbroker.Config) { c.Subjects = []string{"a.>.b"} },
		`Subjects[2] is "a.b", which overlaps with Subjects[0], "a.*"`: func(c *natsbroker.Config) {
			c.Subjects = []string{"a.*", "c", "a.b"}
		},
		`Subjects[1] is "a", which overlaps with Subjects[0], "a"`: func(c *natsbroker.Config) {
			c.Subjects = []string{"a", "a"}
		},
		"URLs[1] holds no login, and URLs[0] does": func(c *natsbroker.Config) {
			c.URLs, c.PlaintextAuth = []string{"nats://u:hunter2@127.0.0.1", "nats://h"}, true
		},
		"URLs[0] holds no login, and URLs[1] does": func(c *natsbroker.Config) {
			c.URLs = []string{"nats://h", "nats://hunter2@127.0.0.1"}
		},
		"URLs[0] holds a login, and User is set": func(c *natsbroker.Config) {
			c.URLs, c.User = []string{"nats://u:hunter2@127.0.0.1"}, "u"
		},
		"URLs[0] holds a login, and Token is set": func(c *natsbroker.Config) {
			c.URLs, c.Token = []string{"nats://hunter2@127.0.0.1"}, broker.NewSecret("hunter2")
		},
		"URLs[0] holds a login, and CredsFile is set": func(c *natsbroker.Config) {
			c.URLs, c.CredsFile = []string{"nats://u:hunter2@127.0.0.1"}, "c"
		},
		`Domain is "a b": no dots`:   func(c *natsbroker.Config) { c.Domain = "a b" },
		`Domain is "hub.>": no dots`: func(c *natsbroker.Config) { c.Domain = "hub.>" },
		"Stream has 256 bytes":       func(c *natsbroker.Config) { c.Stream = strings.Repeat("S", 256) },
		"Consumer has 300 bytes":     func(c *natsbroker.Config) { c.Consumer = strings.Repeat("c", 300) },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestNoFindingShowsAToken: in a URL a token stands where a user's name does, and there is no password. What is wrong with the
// URL showed it, to whoever reads the output of a check.
func TestNoFindingShowsAToken(t *testing.T) {
	for _, url := range []string{"nats://hunter2@nats.example.com", "hunter2@nats.example.com:4222",
		"nats://hunter2@127.0.0.1:99999", "http://hunter2@127.0.0.1", "nats://hunter2@"} {
		c := natsbroker.Config{Connection: natsbroker.Connection{URLs: []string{url}}, Stream: "S", Consumer: "c"}
		if err := c.Validate(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestNoPasswordWithoutTLS(t *testing.T) {
	for i, c := range []struct {
		conn natsbroker.Connection
		ok   bool
	}{
		{natsbroker.Connection{URLs: []string{"nats://u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"nats://example.com"}, User: "u", Password: broker.NewSecret("hunter2")}, false},
		{natsbroker.Connection{URLs: []string{"example.com:4222"}, Token: broker.NewSecret("hunter2")}, false},
		// What stands behind a mistyped scheme, or a / ? # in a password, is a path, a query or a fragment.
		{natsbroker.Connection{URLs: []string{"nats//u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"nats:/u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"tls://u:1/hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"tls://u:1?hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"tls://u:1#hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"nats://a,nats://u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"kafka:u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"kafka//u:hunter2@example.com"}}, false},
		{natsbroker.Connection{URLs: []string{"tls://example.com/"}}, true},
		{natsbroker.Connection{URLs: []string{"nats://example.com"}, Token: broker.NewSecret("hunter2"), PlaintextAuth: true}, true},
		{natsbroker.Connection{URLs: []string{"tls://example.com"}, Token: broker.NewSecret("hunter2")}, true},
		{natsbroker.Connection{URLs: []string{"nats://example.com"}, Token: broker.NewSecret("hunter2"),
			TLS: natsbroker.TLS{Enabled: true}}, true},
		{natsbroker.Connection{URLs: []string{"nats://[::1]:4222", "nats://localhost", "nats://127.1.2.3"},
			Token: broker.NewSecret("hunter2")}, true},
	} {
		_, err := natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: c.conn})
		if (err == nil) != c.ok || (err != nil && (strings.Contains(err.Error(), "hunter2") ||
			!strings.Contains(err.Error(), "URLs[0]"))) {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

// TestSubjectsThatOverlapPartly: of a durable whose subjects have some messages in common, and neither all of the other's, each
// message comes once; the server refuses no such durable.
func TestSubjectsThatOverlapPartly(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 3) // s.a, which both take
	cfg := config(ts.url())
	cfg.Subjects = []string{"s.*", "*.a"}
	s := open(t, cfg)
	var got []int64
	for _, m := range receive(t, s, 3) {
		got = append(got, m.Offset)
	}
	a.publish(4, 4)
	if got = append(got, receive(t, s, 1)[0].Offset); !slices.Equal(got, []int64{1, 2, 3, 4}) {
		t.Errorf("messages %v came", got)
	}
}
