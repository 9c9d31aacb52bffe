package redisbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A PublisherConfig is what a Publisher is made of.
type PublisherConfig struct {
	// Redis says how to connect. Required.
	Redis *redis.Options
	// MaxMessageBytes is how large a message may be, key and headers included. Defaults to 64 MiB.
	MaxMessageBytes int
}

// A Publisher appends to streams; see broker.Publisher.
type Publisher struct {
	cfg  PublisherConfig
	life *kit.Publishing
	rdb  *redis.Client
}

var _ broker.Publisher = (*Publisher)(nil)

// NewPublisher makes a publisher. It connects to nothing.
func NewPublisher(c PublisherConfig) (*Publisher, error) {
	if c.Redis == nil {
		return nil, errors.New("redisbroker: PublisherConfig.Redis is nil")
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = 64 << 20
	}
	return &Publisher{cfg: c, life: kit.NewPublishing("redisbroker"), rdb: client(c.Redis, longest)}, nil
}

var errUnstored = errors.New("redisbroker: not stored yet")

// Publish writes messages. See broker.Publisher. One whose answer got lost is stored twice.
func (p *Publisher) Publish(ctx context.Context, ms []broker.Outgoing) error {
	return p.life.Do(ctx, func(ctx context.Context) error {
		errs := make([]error, len(ms))
		for i := range ms {
			errs[i] = p.check(&ms[i])
		}
		err := kit.Retry(ctx, retryPause, func(ctx context.Context) error { return p.add(ctx, ms, errs) }, never)
		if err != nil {
			return fmt.Errorf("redisbroker: publishing: %w", err)
		}
		if errors.Join(errs...) != nil {
			return &broker.PublishError{Errs: errs}
		}
		return nil
	})
}

// check says why a message can never be stored; otherwise errUnstored.
func (p *Publisher) check(m *broker.Outgoing) error {
	size := len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		size += len(h.Key) + len(h.Value)
	}
	if m.Topic == "" {
		return fmt.Errorf("redisbroker: publishing: the topic is empty: %w", broker.ErrRefused)
	}
	if err := broker.CheckDestination(m.Topic); err != nil {
		return fmt.Errorf("redisbroker: %w: %w", err, broker.ErrRefused)
	}
	if size > p.cfg.MaxMessageBytes {
		return fmt.Errorf("redisbroker: a message for %q has %d bytes, more than %d: %w", m.Topic, size, p.cfg.MaxMessageBytes,
			broker.ErrRefused)
	}
	return errUnstored
}

// add tries to store what is neither stored nor refused. An error: some is still not.
func (p *Publisher) add(ctx context.Context, ms []broker.Outgoing, errs []error) (unstored error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	pipe, cmds := p.rdb.Pipeline(), make(map[int]*redis.StringCmd)
	for i := range ms {
		if errs[i] != nil && !errors.Is(errs[i], broker.ErrRefused) {
			cmds[i] = pipe.XAdd(ctx, &redis.XAddArgs{Stream: ms[i].Topic, Values: encode(&ms[i])})
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, cmd := range cmds {
		if errs[i] = cmd.Err(); isFinal(errs[i]) {
			errs[i] = fmt.Errorf("redisbroker: publishing to %q: %w: %w", ms[i].Topic, errs[i], broker.ErrRefused)
		} else if errs[i] != nil {
			unstored = errs[i]
		}
	}
	return unstored
}

// Close waits for publishes under way. See broker.Publisher.
func (p *Publisher) Close(ctx context.Context) error { return p.life.Close(ctx, p.rdb.Close) }
