//go:build unix

package integration

import (
	"cmp"
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest/faultproxy"
	"github.com/longshoremq/longshore/integration/ledger"
	"github.com/longshoremq/longshore/integration/natsd"
)

const (
	loadStream  = "LOAD"
	loadDurable = "workers"
)

// natsSystem is nats-server with JetStream.
type natsSystem struct {
	server *natsd.Server
	js     jetstream.JetStream
}

func startNATS(t *testing.T) system {
	t.Helper()
	s := &natsSystem{server: natsd.Start(t)}
	s.js = connect(t, s.server.URL())
	s.createStream(t)
	return s
}

// onNATS is the field's system, where it is JetStream.
func (f *field) onNATS() *natsSystem { return f.on.(*natsSystem) }

func (s *natsSystem) broker() string { return "nats" }

func (s *natsSystem) createStream(t *testing.T) {
	t.Helper()
	_, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: loadStream, Subjects: []string{"load.>"},
		Storage: jetstream.FileStorage})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *natsSystem) configure(c *consumerConfig) {
	c.Broker, c.URL, c.Group, c.Lease = "nats", s.server.URL(), loadDurable, 2*time.Second
}

// publisher publishes with an id, so that the stream drops what it has. The key is the subject's second token.
func (s *natsSystem) publisher(t *testing.T) publish {
	t.Helper()
	js := connect(t, s.server.URL())
	return func(ctx context.Context, m outgoing) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		token := cmp.Or(m.key, strconv.FormatInt(m.id%10, 10))
		ack, err := js.Publish(ctx, "load."+token, m.body, jetstream.WithMsgID(m.load+strconv.FormatInt(m.id, 10)))
		if err != nil {
			return 0, err
		}
		return int64(ack.Sequence), nil
	}
}

func (s *natsSystem) progress(t *testing.T) progress {
	t.Helper()
	i, err := s.info(t)
	if err != nil {
		t.Logf("asking for the consumer: %v", err)
		return progress{Broker: ledger.Stream{Unsettled: 1}}
	}
	floor, delivered := int64(i.AckFloor.Stream), int64(i.Delivered.Stream)
	return progress{
		Broker:  ledger.Stream{Floor: floor, Delivered: delivered, Unsettled: i.NumAckPending},
		idle:    i.NumPending == 0 && i.NumAckPending == 0,
		settled: floor == delivered && i.NumAckPending == 0,
	}
}

func (s *natsSystem) info(t *testing.T) (*jetstream.ConsumerInfo, error) {
	t.Helper()
	c, err := s.js.Consumer(t.Context(), loadStream, loadDurable)
	if err != nil {
		return nil, err
	}
	return c.Info(t.Context())
}

// mustInfo is info of a durable that exists.
func (s *natsSystem) mustInfo(t *testing.T) *jetstream.ConsumerInfo {
	t.Helper()
	i, err := s.info(t)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// lettersTo makes a stream for dead letters, and returns the subject.
func (s *natsSystem) lettersTo(t *testing.T) string {
	t.Helper()
	if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"},
		Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	return "dead.load"
}

// letters reads the stream of dead letters.
func (s *natsSystem) letters(t *testing.T, _ string) (all []letter) {
	t.Helper()
	stream, err := s.js.Stream(t.Context(), "DEAD")
	if err != nil {
		t.Fatal(err)
	}
	for n := range stream.CachedInfo().State.LastSeq {
		m, err := stream.GetMsg(t.Context(), n+1)
		if err != nil {
			t.Fatal(err)
		}
		seq, err := strconv.ParseInt(m.Header.Get(broker.HeaderOriginalOffset), 10, 64)
		if err != nil {
			t.Error(err)
		}
		all = append(all, newLetter(t, m.Data, seq, m.Header.Get(jetstream.MsgIDHeader)))
	}
	return all
}

// audit has nothing to add: progress comes from the server itself, by nats.go.
func (s *natsSystem) audit(*testing.T) []string { return nil }

// toolAgrees neither: there is no such command.
func (s *natsSystem) toolAgrees(*testing.T) {}

func (s *natsSystem) kill() { s.server.Kill() }

func (s *natsSystem) restart() error { return s.server.Start() }

func (s *natsSystem) proxy(t *testing.T) (*faultproxy.Proxy, string) {
	t.Helper()
	p, err := faultproxy.New(s.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, "nats://" + p.Addr()
}

// connect makes a client that outlives a broker's restarts.
func connect(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
