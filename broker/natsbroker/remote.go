package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// remoteConsumer asks the server about our consumer and its stream. Safe for concurrent use.
type remoteConsumer struct {
	cfg  *Config
	link *link
}

func (r *remoteConsumer) name() string { return r.cfg.Consumer }

// info asks for the consumer's info.
func (r *remoteConsumer) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	js, err := r.cfg.api(r.link.conn())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cons, err := js.Consumer(ctx, r.cfg.Stream, r.cfg.Consumer)
	if err != nil {
		return nil, err
	}
	return cons.CachedInfo(), nil
}

// sureInfo asks once more where there is no consumer: a cluster that is choosing its leader may say so for a moment.
func (r *remoteConsumer) sureInfo(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	info, err := r.info(ctx)
	if missing(err) && sleep(ctx, 250*time.Millisecond) {
		return r.info(ctx)
	}
	return info, err
}

// streamInfo asks for the stream's info.
func (r *remoteConsumer) streamInfo(ctx context.Context) (*jetstream.StreamInfo, error) {
	return r.cfg.streamInfo(ctx, r.link.conn())
}

func (c Config) streamInfo(ctx context.Context, nc *nats.Conn) (*jetstream.StreamInfo, error) {
	js, err := c.api(nc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	st, err := js.Stream(ctx, c.Stream)
	if err != nil {
		return nil, err
	}
	return st.CachedInfo(), nil
}

// lost says whether the stream has lost its end, as a witness tells. sure: that is known, or cannot be, since the stream may not
// be asked, or has let go of all of them.
func (r *remoteConsumer) lost(ctx context.Context, ws witnesses) (lost, sure bool) {
	return r.cfg.lost(ctx, r.link.conn(), ws)
}

func (c Config) lost(ctx context.Context, nc *nats.Conn, ws witnesses) (lost, sure bool) {
	for _, w := range ws {
		m, err := c.stored(ctx, nc, c.Stream, ">", w.seq)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			if st, err := c.streamInfo(ctx, nc); err != nil || st.State.LastSeq < w.seq {
				return err == nil, err == nil
			}
		case err != nil:
			return false, errors.Is(err, nats.ErrNoResponders)
		case m.Seq == w.seq:
			return m.Time.UnixNano() != w.nanos, true
		}
	}
	return false, true
}

// request makes a request about the consumer; publish one whose answers go elsewhere.
func (r *remoteConsumer) request(ctx context.Context, verb string, body []byte) (*nats.Msg, error) {
	return r.link.conn().RequestWithContext(ctx, r.cfg.apiSubject(verb), body)
}

func (r *remoteConsumer) publish(verb, reply string, body []byte) error {
	return r.link.conn().PublishRequest(r.cfg.apiSubject(verb), reply, body)
}

// apiSubject is that of a request about the consumer.
func (c Config) apiSubject(verb string) string {
	return fmt.Sprintf("%sCONSUMER.%s.%s.%s", c.apiPrefix(), verb, c.Stream, c.Consumer)
}

func missing(err error) bool {
	return errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, jetstream.ErrConsumerDoesNotExist)
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
