package natsbroker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestLagView: 10 published, 6 delivered, of these the 3rd and 5th settled above the floor at 1.
func TestLagView(t *testing.T) {
	ts, a := serveStream(t)
	a.publish(1, 10)
	cons, err := a.js.CreateConsumer(t.Context(), "S",
		jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := cons.Fetch(6)
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		if n := string(m.Data()); n == "1" || n == "3" || n == "5" {
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	v, err := natsbroker.NewLagView(natsbroker.LagViewConfig{Connection: natsbroker.Connection{URLs: []string{ts.url()}},
		Stream: "S", Consumer: "c"})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	want := natsbroker.ConsumerLag{Committed: 1, End: 10, Lag: 9, Finished: 2, Pending: 3, Arrived: 10}
	for range 2 { // the second on the same connection
		if got, err := v.Read(t.Context()); err != nil || got != want {
			t.Errorf("%+v %v, want %+v", got, err, want)
		}
	}
}

func TestLagViewErrors(t *testing.T) {
	t.Parallel()
	if _, err := natsbroker.NewLagView(natsbroker.LagViewConfig{Stream: "a.b"}); err == nil ||
		!strings.Contains(err.Error(), "Stream is") || !strings.Contains(err.Error(), "Consumer is missing") {
		t.Error(err)
	}
	ts := startServer(t)
	ts.admin().stream()
	for url, want := range map[string]string{ts.url(): "there is no consumer c of stream S: ",
		"nats://127.0.0.1:1": "connecting to nats://127.0.0.1:1"} {
		v, err := natsbroker.NewLagView(natsbroker.LagViewConfig{Connection: natsbroker.Connection{URLs: []string{url}}, Stream: "S",
			Consumer: "c"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if _, err := v.Read(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
		cancel()
		v.Close()
	}
}

// A view whose server went away says so, and where that was; what nats.go says of its buffers is nothing to go by.
func TestLagViewWhoseServerIsAway(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	ts.admin().stream()
	v, err := natsbroker.NewLagView(natsbroker.LagViewConfig{Connection: natsbroker.Connection{URLs: []string{ts.url()}},
		Stream: "S", Consumer: "c"})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	read := func() error { // one that was asked of a server which goes away then has no answer
		ctx, cancel := context.WithTimeout(t.Context(), patience/10)
		defer cancel()
		_, err := v.Read(ctx)
		return err
	}
	if err := read(); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Fatal(err)
	}
	ts.down()
	eventually(t, "it says that there is no connection", func() bool {
		err := read()
		return err != nil && strings.Contains(err.Error(), "natsbroker: reading lag: no connection: connection to "+ts.url())
	})
	if err := read(); strings.Contains(err.Error(), "buffer") {
		t.Error(err)
	}
	ts.up()
	eventually(t, "it asks again", func() bool { return errors.Is(read(), jetstream.ErrConsumerNotFound) })
}

// TestLagViewSaysWhatIsNotThere: it says what is not there, by its name, and what may be the reason; not what the server's API
// calls it.
func TestLagViewSaysWhatIsNotThere(t *testing.T) {
	t.Parallel()
	with, without := startServer(t), startServer(t, func(o *server.Options) { o.JetStream = false })
	with.admin().stream()
	for name, tc := range map[string]struct {
		url, stream, domain, want string
		is                        error
	}{
		"no consumer":  {with.url(), "S", "", "there is no consumer c of stream S: a process makes it", jetstream.ErrConsumerNotFound},
		"no stream":    {with.url(), "NONE", "", "there is no stream NONE, or not in this account", jetstream.ErrStreamNotFound},
		"no domain":    {with.url(), "S", "hub", "no JetStream answers, in domain hub", nil},
		"no JetStream": {without.url(), "S", "", "no JetStream answers", nil},
	} {
		v, err := natsbroker.NewLagView(natsbroker.LagViewConfig{Connection: natsbroker.Connection{URLs: []string{tc.url}},
			Stream: tc.stream, Consumer: "c", Domain: tc.domain})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = v.Read(ctx)
		if err == nil || !strings.Contains(err.Error(), "natsbroker: reading lag: "+tc.want) || strings.Contains(err.Error(), "code=") {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v is not %v", name, err, tc.is)
		}
	}
}

// Who may not listen to the answers is told so at each question: also where the server said it before, and where the connection
// is made anew, for that, while an answer is waited for.
func TestLagViewWithoutAnswers(t *testing.T) {
	t.Parallel()
	ts := startServer(t, fewMay(server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}}}))
	ts.admin(nats.UserInfo("all", "word")).stream()
	for wait, times := range map[time.Duration]int{time.Hour: 2, time.Millisecond: 1} {
		v, err := natsbroker.NewLagView(natsbroker.LagViewConfig{Stream: "S", Consumer: "c", Connection: natsbroker.Connection{
			URLs: []string{ts.url()}, User: "few", Password: broker.NewSecret("word"),
			ReconnectWait: wait, MaxReconnectWait: wait}})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		for range times {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := v.Read(ctx); err == nil || !strings.Contains(err.Error(), `Subscription to "_INBOX.`) {
				t.Errorf("renewed in %v: %v, want that it may not subscribe", wait, err)
			}
		}
	}
}
