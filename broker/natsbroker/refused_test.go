package natsbroker_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// reload has the server take other settings while it runs. Not for settings that refuse a connection there is: the server
// tells of that with counts that it reads without their lock, which the race detector sees. What refuses is a restart's.
func (ts *testServer) reload(change func(*server.Options)) {
	ts.t.Helper()
	opts := ts.opts.Clone()
	change(opts)
	if err := ts.srv.ReloadOptions(opts); err != nil {
		ts.t.Fatal(err)
	}
}

// serveFew has a server whose user "few" may do all, until it is told that it may not listen to a subject.
func serveFew(t *testing.T) (ts *testServer, deaf func(subject string), cured func()) {
	ts = startServer(t, fewMay(server.Permissions{}))
	deaf = func(subject string) {
		ts.reload(fewMay(server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{subject}}}))
	}
	return ts, deaf, func() { ts.reload(fewMay(server.Permissions{})) }
}

// warned waits until a warning has these words.
func warned(t *testing.T, ev *events, words string) {
	t.Helper()
	eventually(t, "it is told: "+words, func() bool {
		for _, e := range ev.of(broker.Warning) {
			if strings.Contains(e.Err.Error(), words) {
				return true
			}
		}
		return false
	})
}

// deafSource is a source whose right to its answers was taken away after its first message, until cured.
func deafSource(t *testing.T, reconnectWait time.Duration) (ts *testServer, a *admin, s *opened, cured func()) {
	t.Helper()
	ts, deaf, cured := serveFew(t)
	a = ts.admin(nats.UserInfo("all", "word"))
	a.stream()
	a.publish(1, 1)
	cfg := config(ts.url())
	cfg.User, cfg.Password, cfg.Poll = "few", broker.NewSecret("word"), 100*time.Millisecond
	cfg.ReconnectWait = reconnectWait
	s = open(t, cfg)
	ack(t, s, receive(t, s, 1)...)
	deaf("_INBOX.>")
	warned(t, s.events, "Subscription to")
	return ts, a, s, cured
}

// A right that is taken away takes the subscriptions with it, and the server does not bring them back with the right. The source
// does, by a new connection.
func TestAnswersThatWereNotAllowedForAWhile(t *testing.T) {
	t.Parallel()
	_, a, s, cured := deafSource(t, 0)
	cured()
	a.publish(2, 2)
	ack(t, s, receive(t, s, 1)...)
	a.settled()
}

// Who asks for what it has no right to asks again, and so is refused again and again. That is told once a minute.
func TestMissingRightsAreToldSeldom(t *testing.T) {
	t.Parallel()
	ts, deaf, _ := serveFew(t)
	ts.admin(nats.UserInfo("all", "word")).stream()
	cfg := config(ts.url())
	cfg.User, cfg.Password = "few", broker.NewSecret("word")
	s := open(t, cfg)
	deaf("_INBOX.>")
	eventually(t, "it connected again three times", func() bool { return len(s.events.of(broker.Down)) >= 3 })
	var told []string
	for _, e := range s.events.of(broker.Warning) {
		told = append(told, e.Err.Error())
	}
	if len(told) != 1 || !strings.Contains(told[0], "Subscription to") {
		t.Errorf("%d warnings: %q, want one", len(told), told)
	}
}

// Who may not ask for messages gets none, though the server answers all else: that is no contact, until an answer comes.
func TestPullsThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	no := server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.MSG.NEXT.>"}}}
	ts := startServer(t, fewMay(no))
	a := ts.admin(nats.UserInfo("all", "word"))
	a.stream()
	cfg := ts.as(natsbroker.Connection{User: "few", Password: broker.NewSecret("word")})
	s := open(t, cfg)
	eventually(t, "it is down, and told again that it is", func() bool { return len(s.events.of(broker.Down)) > 1 })
	if n := len(s.events.of(broker.Up)); n != 1 {
		t.Errorf("it was up %d times", n)
	}
	ts.reload(fewMay(server.Permissions{}))
	a.publish(1, 1)
	ack(t, s, receive(t, s, 1)...)
	eventually(t, "it is up", func() bool { return len(s.events.of(broker.Up)) == 2 })
}

// A queue group subscribes again by itself, and its connection has to stay: what comes to its other subjects would be lost.
func TestCoreSubjectThatWasNotAllowedForAWhile(t *testing.T) {
	t.Parallel()
	ts, deaf, cured := serveFew(t)
	cfg := natsbroker.CoreConfig{Connection: config(ts.url()).Connection, Subjects: []string{"s.*", "t"}, Queue: "q"}
	cfg.User, cfg.Password = "few", broker.NewSecret("word")
	s := openCoreOf(t, cfg, broker.Budget{Messages: 1000, Bytes: 1 << 20})
	nc := ts.admin(nats.UserInfo("all", "word")).js.Conn()
	deaf("s.*")
	warned(t, s.events, "Subscription to")
	cured()
	dst := make([]broker.Message, 1)
	came := make(chan error, 1)
	go func() {
		n, err := s.Receive(dst)
		if err == nil && (n != 1 || dst[0].Topic != "s.a") {
			err = fmt.Errorf("%d messages, the first of %s", n, dst[0].Topic)
		}
		came <- err
	}()
	eventually(t, "a message comes", func() bool {
		corePublish(t, nc, 1)
		select {
		case err := <-came:
			if err != nil {
				t.Error(err)
			}
			return true
		default:
			return false
		}
	})
	if down := s.events.of(broker.Down); len(down) > 0 {
		t.Errorf("the connection was lost: %v", down[0].Err)
	}
}

// A server tells its bound for messages at the connection, and not that it was raised.
func TestPayloadThatWasTooLargeForAWhile(t *testing.T) {
	t.Parallel()
	ts := startServer(t, func(o *server.Options) { o.MaxPayload = 1000 })
	ts.admin().stream()
	p := newPublisher(t, ts.url())
	large := []broker.Outgoing{{Topic: "s.a", Value: make([]byte, 5000)}}
	if err := p.Publish(t.Context(), large); !errors.Is(err, nats.ErrMaxPayload) {
		t.Fatalf("Publish: %v, want that it is too large", err)
	}
	ts.reload(func(o *server.Options) { o.MaxPayload = 1 << 20 })
	eventually(t, "it is taken", func() bool { return p.Publish(t.Context(), large) == nil })
}

// A server that does not answer, though its connection lives, is left for another one.
func TestServerWithoutJetStreamIsLeft(t *testing.T) {
	t.Parallel()
	servers := make(map[string]*testServer)
	cfg := config("")
	cfg.URLs, cfg.Recreate, cfg.Poll = nil, true, 50*time.Millisecond
	for _, name := range []string{"one", "two"} {
		ts, a := serveStream(t)
		if _, err := a.js.Publish(t.Context(), "s.a", []byte(name)); err != nil {
			t.Fatal(err)
		}
		servers[name], cfg.URLs = ts, append(cfg.URLs, ts.url())
	}
	s := open(t, cfg)
	first := receive(t, s, 1)
	ack(t, s, first...)
	name := string(first[0].Value)
	if err := servers[name].srv.DisableJetStream(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it does not answer", func() bool { return len(s.events.of(broker.Down)) > 0 })
	next := receive(t, s, 1)
	ack(t, s, next...)
	if string(next[0].Value) == name {
		t.Errorf("it got %q from the server that does not answer", next[0].Value)
	}
}

// So does a Publisher leave one that confirms nothing: dead letters would wait there for as long as it is cut off.
func TestServerThatConfirmsNothingIsLeft(t *testing.T) {
	t.Parallel()
	servers := make(map[string]*testServer)
	var urls []string
	for range 2 {
		ts, _ := serveStream(t)
		servers[ts.url()], urls = ts, append(urls, ts.url())
	}
	p := newPublisher(t, urls[0], func(cfg *natsbroker.PublisherConfig) {
		cfg.URLs, cfg.AckTimeout = urls, 200*time.Millisecond
	})
	publish := func() error { return p.Publish(t.Context(), []broker.Outgoing{{Topic: "s.a"}}) }
	eventually(t, "the first one confirms", func() bool { return publish() == nil })
	for _, ts := range servers {
		if ts.srv.NumClients() > 1 { // the test's own is there, too
			if err := ts.srv.DisableJetStream(); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "the other one confirms", func() bool { return publish() == nil })
}

// A connection that goes while it waits to be made anew, for a refusal, is refused the same again by the next one, and that has a
// try of its own.
func TestAnswersThatWereNotAllowedOverALostConnection(t *testing.T) {
	t.Parallel()
	ts, a, s, cured := deafSource(t, 10*time.Millisecond)
	few := func() (id, subs uint64) {
		for _, c := range must(ts.srv.Connz(&server.ConnzOptions{Username: true})).Conns {
			if c.AuthorizedUser == "few" {
				id, subs = c.Cid, uint64(c.NumSubs)
			}
		}
		return id, subs
	}
	// The pauses double: one is soon long enough to lose the connection in.
	for range 6 {
		was, _ := few()
		eventually(t, "it connected again", func() bool { id, _ := few(); return id > was })
	}
	was, _ := few()
	if err := ts.srv.DisconnectClientByID(was); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it connected again", func() bool { id, _ := few(); return id > was })
	cured()
	a.publish(2, 2)
	ack(t, s, receive(t, s, 1)...)
	a.settled()
}

// Who may have fewer subscriptions than a source needs is told so, and by what it is down.
func TestTooManySubscriptions(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.nc.Close()
	ts.down()
	ts.opts.MaxSubs = 2
	ts.up()
	s := open(t, config(ts.url()))
	eventually(t, "it is down, and for what", func() bool {
		return slices.ContainsFunc(s.events.of(broker.Down), func(e broker.Event) bool {
			return strings.Contains(e.Err.Error(), "no heartbeat") && strings.Contains(e.Err.Error(), "maximum subscriptions exceeded")
		})
	})
}
