package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

var _ broker.Destinations = (*Publisher)(nil)

// Find implements broker.Destinations.
func (p *Publisher) Find(ctx context.Context, subject string) error {
	err := p.life.Do(ctx, func(ctx context.Context) error {
		_, err := p.streamOf(ctx, subject)
		return err
	})
	if err != nil {
		return fmt.Errorf("natsbroker: looking for the stream of %s: %w", subject, err)
	}
	return nil
}

// Create implements broker.Destinations: a stream of one subject, on disk, named after it (dots become underscores), with three
// replicas where the server is one of a cluster.
func (p *Publisher) Create(ctx context.Context, subject string) error {
	if err := p.life.Do(ctx, func(ctx context.Context) error { return p.create(ctx, subject) }); err != nil {
		return fmt.Errorf("natsbroker: creating a stream for %s: %w", subject, err)
	}
	return nil
}

func (p *Publisher) create(ctx context.Context, subject string) error {
	if err := publishable(subject); err != nil {
		return err
	}
	js, err := p.streamOf(ctx, subject)
	if !errors.Is(err, broker.ErrNoTopic) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c := jetstream.StreamConfig{Name: logName(subject), Subjects: []string{subject}, Storage: jetstream.FileStorage, Replicas: 1}
	if p.link.conn().ConnectedClusterName() != "" {
		c.Replicas = 3
	}
	_, err = js.CreateStream(ctx, c)
	return err
}

// streamOf looks for the stream that takes a subject; broker.ErrNoTopic: there is none.
func (p *Publisher) streamOf(ctx context.Context, subject string) (jetstream.JetStream, error) {
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	js, err := jetstream.New(p.link.conn())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = js.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return js, fmt.Errorf("%w: no stream takes the subject", broker.ErrNoTopic)
	}
	return js, err
}

// logName is how a stream for a subject is called.
func logName(subject string) string {
	return strings.NewReplacer(".", "_", "/", "_", `\`, "_").Replace(subject)
}
