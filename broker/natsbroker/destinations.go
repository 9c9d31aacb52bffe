package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

var _ broker.Destinations = (*Publisher)(nil)

// Find implements broker.Destinations. A stream to which a mapping of the account leads, or an import from another account, is
// found once it has confirmed a message.
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
	c := jetstream.StreamConfig{Name: logName(subject), Subjects: []string{subject}, Storage: jetstream.FileStorage, Replicas: 3}
	_, err = js.CreateStream(ctx, c)
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == notClustered {
		c.Replicas = 1
		_, err = js.CreateStream(ctx, c)
	}
	return err
}

// notClustered says that a server stores no replicas. What the connection says does not tell: a single one with leaf nodes has a
// cluster's name, too, and the streams of a domain are elsewhere.
const notClustered jetstream.ErrorCode = 10074

// streamOf looks for the stream that takes a subject; broker.ErrNoTopic: there is none. js is where one is to be created.
func (p *Publisher) streamOf(ctx context.Context, subject string) (js jetstream.JetStream, err error) {
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	js, err = Config{Domain: p.cfg.Domain}.api(p.link.conn())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	asked := time.Now()
	found, err := p.takes(ctx, js, subject)
	if err == nil && !found && !p.leadsOn(subject) {
		err = fmt.Errorf("%w: no stream takes the subject", broker.ErrNoTopic)
	}
	return js, p.link.why(err, asked)
}

// leadsOn says whether a stream takes a subject though none was found for it. A mapping of the account, or an import from another
// one, may lead to it, and only a confirmation tells.
func (p *Publisher) leadsOn(subject string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	proved, ok := p.sought[subject]
	if !ok {
		if len(p.sought) >= mostSought {
			clear(p.sought)
		}
		p.sought[subject] = false
	}
	return proved
}

// mostSought bounds them: a subject may be made of what stands in messages.
const mostSought = 1024

// proved takes that a stream has confirmed a message to a subject.
func (p *Publisher) proved(subject string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.sought[subject]; ok {
		p.sought[subject] = true
	}
}

// takes says whether a stream takes a subject: one of the domain, or of the connection's own, for what is published reaches both.
// Without a word of the domain nothing is known: it may be away, and come again.
func (p *Publisher) takes(ctx context.Context, js jetstream.JetStream, subject string) (bool, error) {
	_, err := js.StreamNameBySubject(ctx, subject)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err == nil, err
	}
	if p.cfg.Domain == "" {
		return false, nil
	}
	own, err := jetstream.New(p.link.conn())
	if err != nil {
		return false, err
	}
	_, err = own.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return false, nil
	}
	return err == nil, err
}

// logName is how a stream for a subject is called.
func logName(subject string) string {
	return strings.NewReplacer(".", "_", "/", "_", `\`, "_").Replace(subject)
}
