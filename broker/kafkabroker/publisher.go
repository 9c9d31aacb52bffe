package kafkabroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/conftag"
)

// PublisherConfig is a publisher to Kafka.
type PublisherConfig struct {
	Connection `yaml:",inline"`

	// MaxMessageBytes is the largest key, value and headers together that are sent; larger ones are broker.ErrRefused, as are those
	// that the broker finds too large. Keep it at the broker's message.max.bytes. Defaults to 1,000,000.
	MaxMessageBytes int `yaml:"max_publish_bytes" want:"1..1073741823"`
}

// A Publisher writes with acks=all, and waits until the broker has confirmed. It implements broker.Publisher. Messages with a key
// go to the partition that Java clients choose for it. Outgoing.ID travels in the header Longshore-Id: Kafka drops no
// repetitions, readers may.
//
// Refused for good (broker.ErrRefused): too large, no such topic (for RequestTimeout), not authorized, no valid topic name or
// record. A partition without a leader is waited for as long; then its messages are unconfirmed. Kafka's own topics (two leading
// underscores) are refused as broker.ErrReserved, too: a topic may come from a message, as a dead letter's does.
type Publisher struct {
	cfg PublisherConfig
	c   *cluster
	w   *kafka.Writer

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
	c, err := cfg.connect("__consumer_offsets")
	if err != nil {
		return nil, err
	}
	c.transport.MetadataTopics = nil // Writer finds leaders in the Transport's own layout
	p := &Publisher{cfg: cfg, c: c, done: make(chan struct{})}
	p.w = &kafka.Writer{
		Addr: c.addr, Transport: c.transport, Balancer: keyed{}, RequiredAcks: kafka.RequireAll, MaxAttempts: 1,
		Completion: answered, BatchTimeout: time.Millisecond, BatchBytes: int64(cfg.MaxMessageBytes) + 1<<20, WriteTimeout: cfg.RequestTimeout, ReadTimeout: cfg.RequestTimeout,
	}
	p.life, p.end = context.WithCancel(context.Background())
	return p, nil
}

// keyed is Java's partitioner: murmur2 of the key. Messages without a key go round.
type keyed struct{}

var (
	murmur2 = kafka.Murmur2Balancer{Consistent: true}
	around  = kafka.RoundRobin{}
)

func (keyed) Balance(m kafka.Message, partitions ...int) int {
	if m.Key == nil {
		return around.Balance(m, partitions...)
	}
	return murmur2.Balance(m, partitions...)
}

// Publish implements broker.Publisher.
func (p *Publisher) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if !p.enter() {
		return broker.ErrClosed
	}
	defer p.under.Done()
	errs := make([]error, len(ms))
	var out []kafka.Message
	var index []int
	for i := range ms {
		m, size := outgoing(&ms[i])
		if errs[i] = p.fits(&ms[i], size); errs[i] == nil {
			out, index = append(out, m), append(index, i)
		}
	}
	if err := p.insist(ctx, out, func(i int, err error) { errs[index[i]] = err }); err != nil {
		return err
	}
	for _, err := range errs {
		if err != nil {
			return &broker.PublishError{Errs: errs}
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

func (p *Publisher) fits(m *broker.Outgoing, size int) error {
	switch {
	case m.Topic == "":
		return fmt.Errorf("kafkabroker: no topic: %w", broker.ErrRefused)
	case broker.CheckDestination(m.Topic) != nil:
		return fmt.Errorf("kafkabroker: %w: %w", broker.CheckDestination(m.Topic), broker.ErrRefused)
	case size > p.cfg.MaxMessageBytes:
		return fmt.Errorf("kafkabroker: message of %d bytes, the limit is %d: %w", size, p.cfg.MaxMessageBytes, broker.ErrRefused)
	}
	return nil
}

// outgoing copies: the Writer may hold a message after ctx has ended.
func outgoing(o *broker.Outgoing) (m kafka.Message, size int) {
	c := (&broker.Message{Key: o.Key, Value: o.Value}).Clone()
	m = kafka.Message{Topic: o.Topic, Key: c.Key, Value: c.Value, WriterData: &answer{base: nowhere}}
	size = len(o.Key) + len(o.Value)
	for _, h := range o.Headers {
		m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: append([]byte(nil), h.Value...)})
		size += len(h.Key) + len(h.Value)
	}
	if o.ID != "" {
		m.Headers = append(m.Headers, kafka.Header{Key: broker.HeaderID, Value: []byte(o.ID)})
		size += len(broker.HeaderID) + len(o.ID)
	}
	return m, size
}

// An answer is what the broker said to the batch that a message was in. The Writer reports only its error, and the rest to
// Completion.
type answer struct {
	base int64 // the offset of the batch's first message
}

// nowhere is the base of a batch that was not stored, or not sent.
const nowhere = -1

// answered is called for each batch, before WriteMessages returns. Without an answer the base is 0: the batch may be stored.
func answered(ms []kafka.Message, _ error) {
	for i := range ms {
		ms[i].WriterData.(*answer).base = ms[0].Offset
	}
}

func baseOf(m kafka.Message) int64 { return m.WriterData.(*answer).base }

// unstored says whether a message is certainly not stored, and another try may be lucky soon: its topic or the partition's leader
// is not known everywhere yet. A leader that has stored a batch and is deposed before the replicas have it says the same, but
// with the batch's offset: the next leader may have it.
func unstored(err error, base int64) bool {
	if errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition) || errors.Is(err, protocol.ErrNoLeader) {
		return true // the Transport knew of nobody to send it to
	}
	switch codeOf(err) {
	case kafka.UnknownTopicOrPartition, kafka.NotLeaderForPartition, kafka.LeaderNotAvailable:
		return base == nowhere
	}
	return false
}

// insist sends messages again that are not stored for want of a topic or a leader, until RequestTimeout is over: a topic that was
// just made is not known to every broker yet.
func (p *Publisher) insist(ctx context.Context, ms []kafka.Message, set func(i int, err error)) error {
	index := make([]int, len(ms))
	for i := range index {
		index[i] = i
	}
	why := make(map[int]error) // those that are sent again are not stored
	for over := time.Now().Add(p.cfg.RequestTimeout); ; pause(ctx, 2*retryWait) {
		var again []kafka.Message
		var whose []int
		err := p.write(ctx, ms, func(i int, err error) {
			if unstored(err, baseOf(ms[i])) && time.Now().Before(over) {
				again, whose = append(again, ms[i]), append(whose, index[i])
				why[index[i]] = err
				return
			}
			set(index[i], classify(err, baseOf(ms[i])))
		})
		if err != nil && len(why) > 0 { // the caller's time is over: say what was waited for
			for _, i := range index {
				if why[i] == nil {
					set(i, err)
				} else {
					set(i, fmt.Errorf("%w (given up: %w)", why[i], err))
				}
			}
			return nil
		}
		if err != nil || len(again) == 0 {
			return err
		}
		ms, index = again, whose
	}
}

// write sends what is left and tries again, one by one, what was refused as part of a batch that was too large. set is called for
// failures.
func (p *Publisher) write(ctx context.Context, ms []kafka.Message, set func(i int, err error)) error {
	if len(ms) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	for i := range ms {
		ms[i].WriterData.(*answer).base = nowhere
	}
	err := p.w.WriteMessages(ctx, ms...)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("kafkabroker: publishing: %w", ctx.Err())
	}
	var each kafka.WriteErrors
	if !errors.As(err, &each) { // nothing was sent
		err = p.explain(ctx, err)
		if rest := slices.IndexFunc(ms, func(m kafka.Message) bool { return m.Topic != ms[0].Topic }); rest > 0 {
			return p.apart(ctx, ms, set)
		}
		for i := range ms {
			set(i, named(ms[i].Topic, err))
		}
		return nil
	}
	for i, err := range each {
		if codeOf(err) == kafka.MessageSizeTooLarge && len(ms) > 1 {
			if err := p.write(ctx, ms[i:i+1], func(_ int, err error) { set(i, err) }); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			set(i, named(ms[i].Topic, err))
		}
	}
	return nil
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

// apart sends each topic by itself, so that one that is missing does not keep the others back.
func (p *Publisher) apart(ctx context.Context, ms []kafka.Message, set func(i int, err error)) error {
	by := make(map[string][]int)
	for i := range ms {
		by[ms[i].Topic] = append(by[ms[i].Topic], i)
	}
	for _, index := range by {
		part := make([]kafka.Message, len(index))
		for j, i := range index {
			part[j] = ms[i]
		}
		if err := p.write(ctx, part, func(j int, err error) { set(index[j], err) }); err != nil {
			return err
		}
	}
	return nil
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
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidTopic, kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed,
		kafka.InvalidRecord, kafka.InvalidTimestamp, kafka.UnsupportedForMessageFormat, kafka.PolicyViolation:
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
			_ = p.w.Close()
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
