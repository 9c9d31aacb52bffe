package natsbroker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/longshoremq/longshore/broker"
)

// crossed has a server with the stream S in one account, and another account that reaches it, as the domain x, by imports of
// these subjects alone. url is for the other one.
func crossed(t *testing.T, subjects []string) (a *admin, url string) {
	t.Helper()
	var exports, imports []string
	for _, s := range subjects {
		exports = append(exports, fmt.Sprintf("{service: %q, response_type: stream}", s))
		imports = append(imports, fmt.Sprintf("{service: {account: A, subject: %q}, to: %q}", s,
			strings.Replace(s, "$JS.API", "$JS.x.API", 1)))
	}
	file := filepath.Join(t.TempDir(), "server.conf")
	err := os.WriteFile(file, fmt.Appendf(nil, `accounts: {
		A: {jetstream: enabled, users: [{user: a, password: word}], exports: [%s]}
		B: {users: [{user: b, password: word}], imports: [%s]}
	}`, strings.Join(exports, ","), strings.Join(imports, ",")), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ts := startServer(t, func(o *server.Options) {
		if err := o.ProcessConfigFile(file); err != nil {
			t.Fatal(err)
		}
	})
	at := strings.TrimPrefix(ts.url(), "nats://")
	a = adminOf(t, "nats://a:word@"+at)
	a.stream()
	return a, "nats://b:word@" + at
}

// Where the account of the process imports all that a source needs but one subject, questions about the consumer are answered,
// and all looks well.
func TestSubjectThatIsNotImported(t *testing.T) {
	t.Parallel()
	const pulls, acks = "$JS.API.CONSUMER.MSG.NEXT.S.c", "$JS.ACK.S.c.>"
	all := []string{"$JS.API.STREAM.INFO.S", "$JS.API.STREAM.MSG.GET.S", "$JS.API.CONSUMER.INFO.S.c", "$JS.API.CONSUMER.CREATE.S.c",
		pulls, acks}
	crossing := func(t *testing.T, without string) (a *admin, s *opened) {
		t.Helper()
		a, url := crossed(t, slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == without }))
		a.publish(1, 3)
		cfg := config(url)
		cfg.Domain, cfg.AckWait = "x", time.Minute
		return a, open(t, cfg)
	}
	once := func(t *testing.T, s *opened) {
		t.Helper()
		pass(t, time.Second, "it lasts")
		if w := s.events.of(broker.Warning); len(w) != 1 {
			t.Errorf("%d warnings, the last of them %v; want one", len(w), w[len(w)-1].Err)
		}
	}
	t.Run("none is missing", func(t *testing.T) {
		t.Parallel()
		a, s := crossing(t, "")
		ack(t, s, receive(t, s, 3)...)
		a.settled()
	})
	t.Run("for the stream", func(t *testing.T) {
		t.Parallel()
		a, s := crossing(t, "$JS.API.STREAM.INFO.S")
		ack(t, s, receive(t, s, 3)...)
		a.settled()
	})
	t.Run("for pulls", func(t *testing.T) {
		t.Parallel()
		_, s := crossing(t, pulls)
		warned(t, s.events, "nobody takes pulls")
		once(t, s)
	})
	t.Run("for acks", func(t *testing.T) {
		t.Parallel()
		a, s := crossing(t, acks)
		ack(t, s, receive(t, s, 3)...)
		warned(t, s.events, "nobody takes acks")
		once(t, s)
		if err := a.js.DeleteStream(t.Context(), "S"); err != nil { // else Close waits for who takes them
			t.Error(err)
		}
	})
}
