package kafkabroker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// destinations are the topics that outputs go to: how they are laid out, which of them cannot be written at the moment, and which
// are written without compression, or in smaller batches. Not safe for concurrent use, but for demands.
type destinations struct {
	c       *cluster
	layouts map[string]topic
	askedAt map[string]time.Time      // when that was said of each
	blocks  map[string]*block         // topics that cannot be written
	stuck   []*stuckTxn               // whose topics wait for their ends
	plain   *kit.Recent[string, bool] // topics that are written without compression; nil: all are
	limits  *kit.Recent[string, int]  // how large batches of topics may be that found some too large
	demands demands
	parts   partitioner
}

const (
	layoutAge    = 5 * time.Second
	firstBlock   = 200 * time.Millisecond
	longestBlock = 10 * time.Second
	// mostLearned is of how many topics, or partitions, it is remembered how they are to be written to, for topics may come and go.
	mostLearned = 10_000
)

// A block is a topic that could not be written: nothing is sent there until a time.
type block struct {
	until time.Time
	wait  time.Duration
}

// An outputError says that topics cannot be written at the moment. They are blocked for a while.
type outputError struct {
	topic string
	first bool // it was not blocked before
	err   error
	// keyless: some that it refused had no key, and that may be why; large: it refused one that was too large by itself
	keyless, large bool
}

func (e *outputError) Error() string {
	return fmt.Sprintf("outputs to topic %s wait: %v", e.topic, e.err)
}
func (e *outputError) Unwrap() error { return e.err }

func newDestinations(c *cluster, compressed bool) *destinations {
	d := &destinations{c: c, layouts: make(map[string]topic), askedAt: make(map[string]time.Time), blocks: make(map[string]*block),
		limits: kit.NewRecent[string, int](mostLearned)}
	if compressed {
		d.plain = kit.NewRecent[string, bool](mostLearned)
	}
	return d
}

// blocked says of topics whether they wait; nil: none does, as nearly always.
func (d *destinations) blocked() func(topic string) bool {
	waiting, now := make(map[string]bool), time.Now()
	for topic, b := range d.blocks {
		if now.Before(b.until) {
			waiting[topic] = true
		}
	}
	for _, s := range d.stuck {
		waiting[s.topic] = true
	}
	if len(waiting) == 0 {
		return nil
	}
	return func(topic string) bool { return waiting[topic] }
}

// block lets outputs to a topic wait, longer with each time. Its error is an *outputError.
func (d *destinations) block(topic string, err error) *outputError {
	b, now := d.blocks[topic], time.Now()
	first := b == nil
	if first {
		if len(d.blocks) >= mostLearned { // nobody writes there any more
			maps.DeleteFunc(d.blocks, func(_ string, b *block) bool { return !now.Before(b.until) })
		}
		b = &block{wait: firstBlock}
		d.blocks[topic] = b
	}
	b.until = now.Add(b.wait)
	b.wait = min(2*b.wait, longestBlock)
	clear(d.layouts) // the others may be led elsewhere by now, too
	return &outputError{topic: topic, first: first, err: err}
}

// written lifts the blocks of the topics.
func (d *destinations) written(outs []*broker.Outgoing) {
	for i := 0; i < len(outs) && len(d.blocks) > 0; i++ {
		delete(d.blocks, outs[i].Topic)
	}
}

// pass lets outputs to a topic that was blocked be tried at once.
func (d *destinations) pass(topic string) {
	d.blocks[topic].until, d.blocks[topic].wait = time.Time{}, firstBlock
}

// plan says which batches go to whom. An *outputError says that a topic cannot be written; nothing was sent then.
func (d *destinations) plan(ctx context.Context, outs []*broker.Outgoing) ([][]*outBatch, error) {
	if len(outs) == 0 {
		return nil, nil
	}
	var names []string
	for i := range outs {
		if !slices.Contains(names, outs[i].Topic) {
			names = append(names, outs[i].Topic)
		}
	}
	if err := d.look(ctx, names); err != nil {
		return nil, err
	}
	for _, name := range names {
		if !d.known(name) {
			err := d.layouts[name].err
			if err == nil {
				err = kafka.UnknownTopicOrPartition
			}
			return nil, d.block(name, err)
		}
	}
	rounds := batchesOf(outs, d.layouts, d.limitOf, d.parts)
	for _, b := range slices.Concat(rounds...) {
		if b.leader < 0 {
			return nil, d.block(b.topic, kafka.LeaderNotAvailable)
		}
	}
	return rounds, nil
}

// lead finds out who leads the partitions of batches by now. An *outputError says that nobody does.
func (d *destinations) lead(ctx context.Context, moved []*producedError) error {
	names := make([]string, 0, 1)
	for _, m := range moved {
		if !slices.Contains(names, m.topic) {
			names = append(names, m.topic)
		}
	}
	clear(d.layouts)
	if err := d.look(ctx, names); err != nil {
		return err
	}
	for _, m := range moved {
		leaders := d.layouts[m.topic].leaders
		if int(m.batch.no) >= len(leaders) || leaders[m.batch.no] < 0 {
			return d.block(m.topic, m.err)
		}
		m.batch.leader = leaders[m.batch.no]
	}
	return nil
}

// look asks how the topics are laid out, where that is not known of one or was asked too long ago. What was asked of others
// stays: the next transaction may be to those.
func (d *destinations) look(ctx context.Context, names []string) error {
	now := time.Now()
	old := func(name string) bool { return !d.known(name) || now.Sub(d.askedAt[name]) > layoutAge }
	if !slices.ContainsFunc(names, old) {
		return nil
	}
	layouts, err := d.c.topics(ctx, names)
	if err != nil {
		return err
	}
	now = time.Now()
	for name, t := range layouts {
		d.layouts[name], d.askedAt[name] = t, now
	}
	maps.DeleteFunc(d.askedAt, func(_ string, at time.Time) bool { return now.Sub(at) > layoutAge })
	maps.DeleteFunc(d.layouts, func(name string, _ topic) bool { return d.askedAt[name].IsZero() })
	return nil
}

func (d *destinations) known(name string) bool {
	return len(d.layouts[name].leaders) > 0 && d.layouts[name].err == nil
}

// compresses says whether outputs to a topic are sent compressed.
func (d *destinations) compresses(topic string) bool {
	if d.plain == nil {
		return false
	}
	plain, _ := d.plain.Get(topic)
	return !plain
}

// limitOf is how large a topic's batches may be.
func (d *destinations) limitOf(topic string) int {
	if n, ok := d.limits.Get(topic); ok {
		return n
	}
	return batchLimit
}

// refused takes note of what a leader did not write: the topic waits, and goes on without compression, or in smaller batches,
// where that may be why. One message that is too large by itself would wait for ever, and is refused from then on. No topic waits
// for what is wrong with our producer: the transaction is aborted, and the next one begins with another epoch.
func (d *destinations) refused(e *producedError) error {
	if refusesProducer(e.err) {
		return fmt.Errorf("writing outputs: %w", e.err)
	}
	if e.batch != nil && isTooLarge(e.err) {
		return d.tooLarge(e)
	}
	bare := e.batch != nil && e.batch.codec == 0
	if d.plain != nil && refusesCompressed(e.err) {
		d.plain.Put(e.topic, !bare) // where it is refused without compression, too, that was not why
	}
	err := d.block(e.topic, suspectClock(e.err, time.Now()))
	err.keyless = bare && e.batch.keyless && isInvalid(e.err, true)
	return err
}

// tooLarge takes note of a batch that was too large for its topic.
func (d *destinations) tooLarge(e *producedError) error {
	err := d.block(e.topic, e.err)
	if err.large = e.batch.n == 1; err.large {
		d.demands.small(e.topic, len(e.batch.buf), !d.compresses(e.topic), time.Now())
		d.limits.Put(e.topic, batchLimit) // the others may be as large as ever
	} else {
		d.limits.Put(e.topic, e.batch.size/2)
	}
	d.pass(e.topic) // the next one may fit
	return err
}

// learnKeyed finds out whether a topic that refused outputs without a key takes none, for it is compacted. Where we may not ask,
// it is taken for one: what has a key would wait for what has none, for ever.
func (d *destinations) learnKeyed(ctx context.Context, topic string) bool {
	ctx, cancel := context.WithTimeout(ctx, d.c.timeout)
	defer cancel()
	values, err := d.c.topicSettings(ctx, topic, policySetting)
	if codeOf(err) != kafka.TopicAuthorizationFailed && !(err == nil && strings.Contains(values[policySetting], "compact")) {
		return false
	}
	d.demands.key(topic, time.Now())
	d.pass(topic)
	return true
}

// refusesCompressed says whether an answer may come of a broker that cannot read, or does not want, what is compressed. Where it
// came of something else, to go on without costs little.
func refusesCompressed(err error) bool {
	switch codeOf(err) {
	case kafka.UnsupportedCompressionType, kafka.InvalidMessage, kafka.InvalidRecord, kafka.Unknown:
		return true
	}
	return false
}

// refusesProducer says whether an answer is about who writes, and not about the topic. Somebody else has our transactional id, or
// its coordinator has aborted the transaction, or forgotten the id: after transactional.id.expiration.ms without a transaction.
// Or the last transaction is still being written out, perhaps to another topic.
func refusesProducer(err error) bool {
	switch codeOf(err) {
	case kafka.InvalidProducerEpoch, kafka.InvalidTransactionState, kafka.InvalidProducerIDMapping, kafka.ProducerFenced,
		codeAbortable, codeConcurrent:
		return true
	}
	return false
}

const codeAbortable = kafka.Error(120) // TRANSACTION_ABORTABLE

// A producedError says which topic a leader did not write to, and which batch it refused; nil: it did not come to that.
type producedError struct {
	topic string
	batch *outBatch
	err   error
}

func (e *producedError) Error() string { return e.err.Error() }
func (e *producedError) Unwrap() error { return e.err }
