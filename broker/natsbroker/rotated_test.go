package natsbroker_test

import (
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// told waits until a Down has these words, in whatever case.
func told(t *testing.T, ev *events, words string) {
	t.Helper()
	eventually(t, "it is down, and says: "+words, func() bool {
		for _, e := range ev.of(broker.Down) {
			if strings.Contains(strings.ToLower(e.Err.Error()), strings.ToLower(words)) {
				return true
			}
		}
		return false
	})
}

// A secret that is replaced, at the server and in its file, is read again at the next connect. Meanwhile the source is down, and
// says that its login is refused, or that the file is not there.
func TestLoginThatIsReplaced(t *testing.T) {
	t.Parallel()
	const next = canary + "-next"
	secretOf := func(name string) broker.Secret { return must(broker.SecretFile(name)) }
	for name, tc := range map[string]struct {
		server func(o *server.Options, secret string)
		login  func(file string) natsbroker.Connection
		admin  func(secret string) nats.Option
	}{
		"password": {
			func(o *server.Options, secret string) { o.Username, o.Password = "u", secret },
			func(file string) natsbroker.Connection {
				return natsbroker.Connection{User: "u", Password: secretOf(file)}
			},
			func(secret string) nats.Option { return nats.UserInfo("u", secret) },
		},
		"token": {
			func(o *server.Options, secret string) { o.Authorization = secret },
			func(file string) natsbroker.Connection { return natsbroker.Connection{Token: secretOf(file)} },
			func(secret string) nats.Option { return nats.Token(secret) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startServer(t, func(o *server.Options) { tc.server(o, canary) })
			a := ts.admin(tc.admin(canary), nats.IgnoreAuthErrorAbort())
			a.stream()
			kept := file(t, canary+"\n")
			s := open(t, ts.as(tc.login(kept)))
			a.publish(1, 1)
			ack(t, s, receive(t, s, 1)...)
			ts.down()
			tc.server(ts.opts, next)
			ts.up()
			told(t, s.events, "authorization")
			if err := os.Remove(kept); err != nil {
				t.Fatal(err)
			}
			told(t, s.events, kept)
			if err := os.WriteFile(kept, []byte(next+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			ts.admin(tc.admin(next)).publish(2, 2)
			ack(t, s, receive(t, s, 1)...)
			s.events.mu.Lock()
			defer s.events.mu.Unlock()
			for _, e := range s.events.all {
				if e.Err != nil && strings.Contains(e.Err.Error(), canary) {
					t.Errorf("the secret is printed: %v", e.Err)
				}
			}
		})
	}
}

// The same of the files that the client reads itself: what cannot be read is told with its name.
func TestLoginFileThatIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	op := newOperator(t)
	creds := op.creds(op.account)
	ts := startServer(t, op.server)
	admin := nats.UserCredentials(op.creds(op.account))
	a := ts.admin(admin)
	a.stream()
	s := open(t, ts.as(natsbroker.Connection{CredsFile: creds}))
	if err := os.Rename(creds, creds+".old"); err != nil {
		t.Fatal(err)
	}
	ts.down()
	ts.up()
	told(t, s.events, creds)
	if err := os.Rename(creds+".old", creds); err != nil {
		t.Fatal(err)
	}
	a.again()
	a.publish(1, 1)
	ack(t, s, receive(t, s, 1)...)
}
