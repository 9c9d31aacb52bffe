package kafkabroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/conftag"
)

// PublisherConfig is a publisher to Kafka.
type PublisherConfig struct {
	Connection `yaml:",inline"`

	// MaxMessageBytes is the largest key, value and headers together that are sent; larger ones are broker.ErrRefused, as are those
	// that the broker finds too large. Keep it at the broker's message.max.bytes. Defaults to 1,000,000.
	MaxMessageBytes int `yaml:"max_publish_bytes" want:"1..1073741823"`
	// Partitioner is how a message's key chooses its partition. Set it as the other producers of a topic have it, or messages of one
	// key are in two partitions, and their order is lost: "murmur2" is that of Java, franz-go, and of librdkafka's murmur2_random,
	// "fnv1a" that of kafka-go's Hash and sarama's NewHashPartitioner (its default), "fnv1a_reference" that of kafka-go's
	// ReferenceHash and sarama's NewReferenceHashPartitioner, "crc32" that of librdkafka's consistent_random (its default, and so
	// that of confluent-kafka in each language), "crc32_consistent" that of its consistent. Messages without a key go round the
	// partitions; with crc32 those with an empty one, too; with crc32_consistent both go to partition 0. A message with
	// Outgoing.Partition goes there. Defaults to murmur2.
	Partitioner string `yaml:"partitioner" want:"murmur2|fnv1a|fnv1a_reference|crc32|crc32_consistent"`
}

// A Publisher writes with acks=all, and waits until the broker has confirmed. It implements broker.Publisher. A message's key
// chooses its partition, as PublisherConfig.Partitioner says. Outgoing.ID travels in the header Longshore-Id: Kafka drops no
// repetitions, readers may.
//
// Refused for good (broker.ErrRefused): too large, no such topic (for RequestTimeout), not authorized, no valid topic name or
// record. A partition without a leader is waited for as long; then its messages are unconfirmed. A time that the broker does not
// take (message.timestamp.after.max.ms) is no refusal, but that of a clock. Kafka's own topics (two leading underscores) are
// refused as broker.ErrReserved, too: a topic may come from a message, as a dead letter's does.
type Publisher struct {
	cfg     PublisherConfig
	c       *cluster
	leaders *leaders
	senders *senders

	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	under  sync.WaitGroup
	done   chan struct{}
}

var _ broker.Publisher = (*Publisher)(nil)

// NewPublisher checks cfg. It connects at the first Publish.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg.Connection = cfg.Connection.withDefaults()
	or(&cfg.MaxMessageBytes, 1_000_000)
	f := findings()
	cfg.Connection.validate(f)
	conftag.Check(f, cfg)
	if err := f.Err(); err != nil {
		return nil, err
	}
	c, err := cfg.connect()
	if err != nil {
		return nil, err
	}
	p := &Publisher{cfg: cfg, c: c, done: make(chan struct{})}
	p.life, p.end = context.WithCancel(context.Background())
	p.leaders, p.senders = newLeaders(c, p.life), newSenders(c, p.life, partitioner(cfg.Partitioner))
	return p, nil
}

// Publish implements broker.Publisher. Beside other calls it shares their requests.
func (p *Publisher) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if !p.enter() {
		return broker.ErrClosed
	}
	defer p.under.Done()
	var few [8]int // on the stack: most calls have one message
	which, failed := few[:0], failures{of: len(ms)}
	for i := range ms {
		if err := p.fits(&ms[i]); err != nil {
			failed.set(i, err)
		} else {
			which = append(which, i)
		}
	}
	if len(which) > 0 {
		if err := p.insist(ctx, ms, which, &failed); err != nil {
			return err
		}
	}
	return failed.err()
}

// failures are the errors of a call's messages, by their numbers. Where none fails there is no list.
type failures struct {
	of   int // messages
	errs []error
}

func (f *failures) set(i int, err error) {
	if f.errs == nil {
		if err == nil {
			return
		}
		f.errs = make([]error, f.of)
	}
	f.errs[i] = err
}

// get is nil where message i has not failed.
func (f *failures) get(i int) error {
	if f.errs == nil {
		return nil
	}
	return f.errs[i]
}

// err is what Publish returns.
func (f *failures) err() error {
	for _, err := range f.errs {
		if err != nil {
			return &broker.PublishError{Errs: f.errs}
		}
	}
	return nil
}

// enter lets Close wait for a call; false: the publisher is closed.
func (p *Publisher) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.under.Add(1)
	return true
}

func (p *Publisher) fits(m *broker.Outgoing) error {
	size := outgoingSize(m)
	switch {
	case m.Topic == "":
		return fmt.Errorf("kafkabroker: no topic: %w", broker.ErrRefused)
	case size > p.cfg.MaxMessageBytes:
		return fmt.Errorf("kafkabroker: message of %d bytes, the limit is %d: %w", size, p.cfg.MaxMessageBytes, broker.ErrRefused)
	}
	if err := broker.CheckDestination(m.Topic); err != nil {
		return fmt.Errorf("kafkabroker: %w: %w", err, broker.ErrRefused)
	}
	return nil
}

// unstored says whether a message is certainly not stored, and another try may be lucky soon: its topic or the partition's leader
// is not known everywhere yet. A leader that has stored a batch and is deposed before the replicas have it says the same, but
// with the batch's offset: the next leader may have it.
func unstored(f fate) bool {
	switch codeOf(f.err) {
	case kafka.UnknownTopicOrPartition, kafka.NotLeaderForPartition, kafka.LeaderNotAvailable, kafka.BrokerNotAvailable:
		return f.base == nowhere
	}
	return false
}

// insist sends messages again that are not stored for want of a topic or a leader, until RequestTimeout is over: a topic that was
// just made is not known to every broker yet. which are those to send; failed gets an error for each that failed.
func (p *Publisher) insist(ctx context.Context, ms []broker.Outgoing, which []int, failed *failures) error {
	now := time.Now()
	for over := now.Add(p.cfg.RequestTimeout); ; now = time.Now() {
		d, err := p.write(ctx, now, ms, which)
		if err != nil {
			return givenUp(which, failed, err)
		}
		var again []int
		for j, f := range d.fates {
			i := which[j]
			if f.err == nil {
				failed.set(i, nil)
				continue
			}
			err := named(ms[i].Topic, f.err)
			if unstored(f) && time.Now().Before(over) {
				again = append(again, i)
			} else {
				err = classify(err, f.base)
			}
			if failed.set(i, err); !errors.Is(err, broker.ErrRefused) {
				p.leaders.doubt(ms[i].Topic)
			}
		}
		p.senders.free(d)
		if which = again; len(which) == 0 {
			return nil
		}
		if pause(ctx, 2*retryWait); ctx.Err() != nil { // what is known of the topics is not asked for, and waits for nothing
			return givenUp(which, failed, fmt.Errorf("kafkabroker: publishing: %w", ctx.Err()))
		}
	}
}

// givenUp says what became of messages that were not sent to the end: what was waited for, where they were sent before and are
// not stored, so far.
func givenUp(which []int, failed *failures, err error) error {
	waited := false
	for _, i := range which {
		waited = waited || failed.get(i) != nil
	}
	if !waited {
		return err
	}
	for _, i := range which {
		if was := failed.get(i); was == nil {
			failed.set(i, err)
		} else {
			failed.set(i, fmt.Errorf("%w (given up: %w)", was, err))
		}
	}
	return nil
}

// write sends messages once, and waits for what becomes of each. Where nothing was sent since nobody can say who leads their
// partitions, all have that error. Its own error is ctx's.
func (p *Publisher) write(ctx context.Context, now time.Time, ms []broker.Outgoing, which []int) (*delivery, error) {
	topics, err := p.leaders.of(ctx, now, ms, which)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("kafkabroker: publishing: %w", ctx.Err())
	case err != nil:
		err = p.explain(ctx, err)
		d := p.senders.delivery(len(which))
		for j := range which {
			d.set(j, fate{err, nowhere})
		}
		return d, await(ctx, d)
	}
	d := p.senders.deliver(ms, which, topics)
	if err := await(ctx, d); err != nil {
		return d, p.c.throttles.explain(err)
	}
	return d, nil
}

// explain finds out why there is no connection, which the Transport does not tell.
func (p *Publisher) explain(ctx context.Context, err error) error {
	switch codeOf(err) {
	case 0, kafka.SASLAuthenticationFailed, kafka.IllegalSASLState, kafka.UnsupportedSASLMechanism:
	default:
		return err
	}
	if de := (*dialError)(nil); errors.As(err, &de) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	return cmp.Or(p.cfg.probe(ctx, p.c.transport), err)
}

func named(topic string, err error) error {
	return fmt.Errorf("kafkabroker: publishing to topic %s: %w", topic, err)
}

// classify marks what another try does not change.
func classify(err error, base int64) error {
	switch codeOf(err) {
	case kafka.UnknownTopicOrPartition:
		if base != nowhere {
			return err
		}
		return broker.NoTopic(err)
	case kafka.InvalidTimestamp: // of a wrong clock, and not of this message: it is taken when that is right again
		return suspectClock(err, time.Now())
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidTopic, kafka.TopicAuthorizationFailed,
		kafka.ClusterAuthorizationFailed,
		kafka.InvalidRecord, kafka.UnsupportedForMessageFormat, kafka.PolicyViolation:
	default:
		return err
	}
	return fmt.Errorf("%w: %w", err, broker.ErrRefused)
}

// Close implements broker.Publisher.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	if first {
		go func() {
			p.under.Wait()
			p.end() // nobody waits for what is under way still
			p.senders.wg.Wait()
			p.c.transport.CloseIdleConnections()
			close(p.done)
		}()
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.end() // publishes under way give up
		return fmt.Errorf("kafkabroker: closing the publisher: %w", ctx.Err())
	}
}
