package natsbroker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// A password may be a word that stands in subjects, too, and is not told there. Which right is missing is known all the same.
const wordOfSubjects = "ACK"

func fewOfThatWord(may server.Permissions) func(*server.Options) {
	return func(o *server.Options) {
		fewMay(may)(o)
		o.Users[1].Password = wordOfSubjects
	}
}

func asFew(c *natsbroker.Connection) { c.User, c.Password = "few", broker.NewSecret(wordOfSubjects) }

func TestAcksThatAreNotAllowedToTheirPassword(t *testing.T) {
	t.Parallel()
	ts := startServer(t, fewOfThatWord(server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.ACK.>"}}}))
	a := ts.admin(nats.UserInfo("all", "word"))
	a.stream()
	a.publish(1, 50)
	cfg := config(ts.url())
	cfg.AckWait = time.Minute
	asFew(&cfg.Connection)
	s := open(t, cfg)
	ack(t, s, receive(t, s, 50)...)
	warned(t, s.events, "may this user publish to $JS.ACK.>?")
	pass(t, 2*time.Second, "acks were sent again")
	if w := s.events.of(broker.Warning); len(w) != 1 {
		t.Errorf("%d warnings, the last of them %v; want one", len(w), w[len(w)-1].Err)
	}
}

func TestPublishToThePassword(t *testing.T) {
	t.Parallel()
	ts := startServer(t, fewOfThatWord(server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"s.>"}}}))
	ts.admin(nats.UserInfo("all", "word")).stream()
	p := newPublisher(t, ts.url(), func(c *natsbroker.PublisherConfig) {
		c.AckTimeout = time.Hour // it is an answer, no timeout
		asFew(&c.Connection)
	})
	if err := one(t, p, broker.Outgoing{Topic: "the.ACK.of"}); !errors.Is(err, broker.ErrRefused) {
		t.Errorf("Publish: %v, want that it is refused", err)
	}
}

func TestPublishWithoutAnswersToThePassword(t *testing.T) {
	t.Parallel()
	ts := startServer(t, fewOfThatWord(server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"ACK.>"}}}))
	ts.admin(nats.UserInfo("all", "word")).stream()
	p := newPublisher(t, ts.url(), func(c *natsbroker.PublisherConfig) {
		c.InboxPrefix, c.AckTimeout = wordOfSubjects, time.Hour
		asFew(&c.Connection)
	})
	err := one(t, p, broker.Outgoing{Topic: "s.a"})
	if err == nil || !strings.Contains(err.Error(), "may not be listened to") || strings.Contains(err.Error(), wordOfSubjects) {
		t.Errorf("Publish: %v, want why there is no answer, without the password", err)
	}
}

func TestCoreSubjectOfThePassword(t *testing.T) {
	t.Parallel()
	ts := startServer(t, fewOfThatWord(server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"ACK.*"}}}))
	cfg := natsbroker.CoreConfig{Connection: config(ts.url()).Connection, Subjects: []string{"ACK.*"}, Queue: "q"}
	asFew(&cfg.Connection)
	s := openCoreOf(t, cfg, broker.Budget{Messages: 1000, Bytes: 1 << 20})
	warned(t, s.events, "permissions violation")
	ts.reload(fewOfThatWord(server.Permissions{}))
	nc := ts.admin(nats.UserInfo("all", "word")).nc
	came := make(chan error, 1)
	go func() {
		_, err := s.Receive(make([]broker.Message, 1))
		came <- err
	}()
	eventually(t, "a message comes", func() bool {
		if err := errors.Join(nc.Publish("ACK.a", nil), nc.Flush()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-came:
			return err == nil
		default:
			return false
		}
	})
}
