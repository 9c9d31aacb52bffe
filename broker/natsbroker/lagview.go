package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/internal/conftag"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LagViewConfig says whose lag to look at.
type LagViewConfig struct {
	Connection

	// Stream and Consumer are names. Required.
	Stream   string
	Consumer string
	// Domain is the JetStream domain, where it is not the connection's own. Defaults to none.
	Domain string
}

// A ConsumerLag is how far a durable consumer is behind.
type ConsumerLag struct {
	// Committed is the ack floor: all messages of the stream up to this sequence are settled.
	Committed int64
	// End is the sequence of the stream's last message.
	End int64
	// Lag is how many of the consumer's messages are above the floor: never delivered, delivered and not settled, and finished.
	Lag int64
	// Finished is how many of these are settled already. Where messages were delivered more than once or the consumer reads only a
	// part of its stream, the server does not tell, and this is the most that it can be.
	Finished int64
	// Pending were delivered and are not settled; Redelivered are those of them that were delivered more than once.
	Pending, Redelivered int64
	// Arrived counts what there was and is to handle since the consumer was made: each delivery, and what was never delivered.
	// What is delivered again counts again.
	Arrived int64
	// Paused: the consumer is paused at the server, which hands out nothing of it.
	Paused bool
}

// A LagView asks the server for a consumer's state, without reading its messages. Not safe for concurrent use.
type LagView struct {
	cfg  Config
	link *link
}

// NewLagView checks cfg. It connects at the first Read.
func NewLagView(cfg LagViewConfig) (*LagView, error) {
	f := findings()
	c := Config{Connection: cfg.Connection, Stream: cfg.Stream, Consumer: cfg.Consumer, Domain: cfg.Domain}.withDefaults()
	conftag.Check(f, c)
	c.Connection.validate(f)
	validateName(f, "Stream", c.Stream)
	validateName(f, "Consumer", c.Consumer)
	validateDomain(f, c.Domain)
	if err := f.Err(); err != nil {
		return nil, err
	}
	none := hooks{lost: func(error) {}, back: func() {}, problem: func(*nats.Subscription, error) {}}
	return &LagView{cfg: c, link: newLink(c.Connection, none)}, nil
}

// Close closes the connection.
func (v *LagView) Close() { v.link.close() }

// Read asks the server. The first one tries to connect until ctx ends; where the connection is lost later, it says so at once.
func (v *LagView) Read(ctx context.Context) (ConsumerLag, error) {
	asked := time.Now()
	l, err := v.read(ctx)
	if errors.Is(err, nats.ErrReconnectBufExceeded) { // so nats.go says that it has no connection, for nothing may wait in it
		return l, fmt.Errorf("natsbroker: reading lag: %w", v.link.away(nats.ErrDisconnected))
	}
	return l, v.link.why(err, asked)
}

func (v *LagView) read(ctx context.Context) (l ConsumerLag, err error) {
	if v.link.conn() == nil {
		if err := v.link.open(ctx); err != nil {
			return l, fmt.Errorf("natsbroker: reading lag: %w", err)
		}
	}
	js, err := v.cfg.api(v.link.conn())
	if err != nil {
		return l, fmt.Errorf("natsbroker: reading lag: %w", err)
	}
	cons, err := js.Consumer(ctx, v.cfg.Stream, v.cfg.Consumer)
	if err != nil {
		return l, fmt.Errorf("natsbroker: reading lag: %w", v.cfg.notThere(err))
	}
	st, err := js.Stream(ctx, v.cfg.Stream)
	if err != nil {
		return l, fmt.Errorf("natsbroker: reading lag: %w", v.cfg.notThere(err))
	}
	info := cons.CachedInfo()
	delivered := min(info.Delivered.Stream-info.AckFloor.Stream, info.Delivered.Consumer-info.AckFloor.Consumer)
	l = ConsumerLag{
		Committed: int64(info.AckFloor.Stream), End: int64(st.CachedInfo().State.LastSeq),
		Finished: max(0, int64(delivered)-int64(info.NumAckPending)), Pending: int64(info.NumAckPending),
		Redelivered: int64(info.NumRedelivered), Paused: info.Paused,
	}
	l.Lag = int64(info.NumPending) + int64(info.NumAckPending) + l.Finished
	l.Arrived = int64(info.NumPending) + int64(info.Delivered.Consumer)
	return l, nil
}

// notThere says what a question about the consumer did not find, and what may be the reason, instead of what the server's API
// calls it. The error is still what err is.
func (c Config) notThere(err error) error {
	consumer := fmt.Sprintf("consumer %s of stream %s", c.Consumer, c.Stream)
	var text string
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		text = "there is no " + consumer + ": a process makes it at its first start, if nobody mistook its name"
	case errors.Is(err, jetstream.ErrStreamNotFound):
		text = "there is no stream " + c.Stream + ", or not in this account" + c.inDomain()
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		text = "no JetStream answers" + c.inDomain() + ": is it enabled there, and for this account?"
	default:
		return fmt.Errorf("%s: %w", consumer, err)
	}
	return &redactedError{text, err}
}

// inDomain names the domain where there is one.
func (c Config) inDomain() string {
	if c.Domain == "" {
		return ""
	}
	return ", in domain " + c.Domain
}
