package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestOpenThatIsGivenUp: whoever ends an Open knows it, and is not told that the broker were down.
func TestOpenThatIsGivenUp(t *testing.T) {
	t.Parallel()
	url := startServer(t, func(o *server.Options) { o.JetStream = false }).url()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := nc.Subscribe("$JS.API.>", func(*nats.Msg) { cancel() }); err != nil { // it is silent
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	s, err := natsbroker.NewSource(config(url))
	if err != nil {
		t.Fatal(err)
	}
	ev := &events{}
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 100, Bytes: 1 << 20}, Observe: ev.observe})
	closing, end := context.WithTimeout(context.Background(), 5*time.Second)
	defer end()
	if cerr := s.Close(closing); !errors.Is(err, context.Canceled) || cerr != nil {
		t.Errorf("Open: %v, Close: %v", err, cerr)
	}
	for _, e := range ev.of(broker.Down) {
		if strings.Contains(fmt.Sprint(e.Err), context.Canceled.Error()) {
			t.Errorf("told: %v", e.Err)
		}
	}
}
