//go:build unix

package integration

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/ledger"
	"github.com/longshoremq/longshore/pool"
)

// runLongshore is the product as a service would use it, with short times so that faults show soon.
func runLongshore(ctx context.Context, c consumerConfig, w *work) error {
	source, err := newSource(c)
	if err != nil {
		return err
	}
	config := consumer.Config{
		Name: c.Group, Source: source, Pool: consumer.Pool{Min: 1, Max: c.Workers}, Order: c.Order,
		Handler: func(ctx context.Context, m *consumer.Message) error { return w.do(ctx, place(m), m.Value) },
		Retry: consumer.Retry{MaxAttempts: 100, Backoff: consumer.Backoff{Initial: 20 * time.Millisecond,
			Max: 200 * time.Millisecond}},

		DrainTimeout: c.Drain, OpenTimeout: c.Open,
		Logger:    zerolog.New(os.Stderr).Level(zerolog.InfoLevel),
		Observers: []consumer.Observer{tell},
	}
	if c.Letters != "" {
		publisher, err := newLetters(c, w.clock)
		if err != nil {
			return err
		}
		defer publisher.Close(context.WithoutCancel(ctx))
		config.Retry.MaxAttempts = 2
		config.DeadLetter = &consumer.DeadLetter{Publisher: publisher, Topic: c.Letters}
	}
	if c.Flap > 0 {
		config.Pool.Policy = flapping{c.Flap}
	}
	cons, err := consumer.New(config)
	if err != nil {
		return err
	}
	return cons.Run(ctx)
}

// flapping wants as many workers as there may be, and as few, in turns.
type flapping struct{ turn time.Duration }

func (f flapping) Step(o pool.Observation) pool.Decision {
	d := pool.Decision{Target: o.Min, Force: true, Reason: "flapping", Next: f.turn - o.Now%f.turn}
	if o.Now/f.turn%2 == 0 {
		d.Target = o.Max
	}
	return d
}

func newSource(c consumerConfig) (broker.Source, error) {
	if c.Broker == "kafka" {
		return kafkabroker.NewSource(kafkabroker.Config{
			Connection: kafkabroker.Connection{Brokers: strings.Split(c.URL, ","), ClientID: clientID(os.Getpid()),
				DialTimeout: 2 * time.Second, RequestTimeout: 3 * time.Second},
			Group: c.Group, Topics: []string{c.Topic}, Membership: membership(),
			Missing:        "run", // one of the faults makes the topic late, and all begin with contact
			SessionTimeout: c.Lease, HeartbeatInterval: c.memberHeartbeat(), RevokeWait: 5 * time.Second,
			RebalanceTimeout: 10 * time.Second,
			CommitInterval:   commitInterval, Poll: 500 * time.Millisecond, OutOfRange: c.OutOfRange,
		})
	}
	keyToken := 0
	if c.Order == consumer.OrderKey {
		keyToken = 2
	}
	return natsbroker.NewSource(natsbroker.Config{
		KeyToken: keyToken,
		Connection: natsbroker.Connection{URLs: []string{c.URL}, ReconnectWait: 50 * time.Millisecond, MaxReconnectWait: time.Second,
			PingInterval: c.Ping, DialTimeout: 2 * time.Second},
		Stream: loadStream, Consumer: c.Group, AckWait: c.Lease, Recreate: c.Recreate,
		CreateStream: &jetstream.StreamConfig{Subjects: []string{"load.>"}, Storage: jetstream.FileStorage},
		Heartbeat:    c.Heartbeat, Poll: 500 * time.Millisecond,
	})
}

// memberHeartbeat is how often a member of a group says that it lives.
func (c consumerConfig) memberHeartbeat() time.Duration { return min(c.Lease/5, c.Heartbeat) }

// clientID names a consumer process to the broker.
func clientID(pid int) string { return "consumer-" + strconv.Itoa(pid) }

// place is where a message stands, in one number.
func place(m *consumer.Message) int64 {
	if m.Partition < 0 {
		return m.Offset
	}
	return ledger.Seq(m.Partition, m.Offset)
}

// tell passes on what the test waits for.
func tell(e consumer.Event) {
	if scaled, ok := e.(consumer.Scaled); ok && scaled.Reason == "flapping" {
		say("scaled", scaled.Target)
	}
	said, ok := e.(consumer.SourceEvent)
	if !ok {
		return
	}
	switch said.Kind {
	case broker.Up:
		say("up")
	case broker.Gap:
		say("gap", said.N)
	case broker.Assigned, broker.Ended:
		say(said.Kind, said.Claim.Partition, time.Now().UnixMilli())
	}
}
