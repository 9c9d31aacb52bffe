package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A BatchHandler handles several messages of one claim (on Kafka: of one partition) at once, in the order in which they came. nil
// acks all of them; an error retries all, or decides as a Handler's would; a *BatchError decides for each. ctx is as a Handler's,
// and Timeout is for the whole call. ms may be kept.
type BatchHandler func(ctx context.Context, ms []*Message) error

// A Batch hands messages over in batches. A batch is handed over when it has Size messages or Bytes, or when Linger has passed
// since its first message came. A message that failed waits its backoff alone, and then for a batch again. With an order, a batch
// has at most one message of a lane, unless it is ByKey.
type Batch struct {
	// Handler handles each batch, instead of Config.Handler. Required.
	Handler BatchHandler `yaml:"-"`
	// Size is the most messages in a batch; at most half of each source's budget. Defaults to 100.
	Size int `yaml:"size" want:"1.."`
	// Bytes is the size of keys and values at which a batch is complete; one message may go over. Defaults to 1 MiB.
	Bytes int `yaml:"bytes" want:"1.."`
	// ByKey gives each batch the messages of one key only; those without a key have batches of their own. Where there are many keys,
	// it is mostly Linger that completes them. With an order, a batch is consecutive messages of one lane, and the first of them
	// that fails ends it: it is retried, and those behind it are handled again after it, one by one, whatever was said of them; they
	// have used up no attempt. Defaults to false.
	ByKey bool `yaml:"by_key"`
	// Linger is how long a message waits for others at most. Longer means larger batches where little comes. Defaults to 100 ms.
	Linger time.Duration `yaml:"linger" want:">0"`
}

// A BatchError says what became of each message of a batch.
type BatchError struct {
	// Errs has an entry for each message, as a Handler would return it; nil acks it. With another number of entries all messages
	// fail.
	Errs []error
}

// Error joins those of the messages.
func (e *BatchError) Error() string {
	if err := errors.Join(e.Errs...); err != nil {
		return err.Error()
	}
	return "no message of the batch failed"
}

// Unwrap returns the messages' errors.
func (e *BatchError) Unwrap() []error { return e.Errs }

// defaults of Batch.
const (
	defaultBatchSize   = 100
	defaultBatchBytes  = 1 << 20
	defaultBatchLinger = 100 * time.Millisecond
)

func (b *Batch) withDefaults() *Batch {
	if b == nil {
		return nil
	}
	d := *b
	if d.Size == 0 {
		d.Size = defaultBatchSize
	}
	if d.Bytes == 0 {
		d.Bytes = defaultBatchBytes
	}
	if d.Linger == 0 {
		d.Linger = defaultBatchLinger
	}
	return &d
}

// batchSize is how many messages a worker takes at once; 0: not in batches.
func (c Config) batchSize() int {
	if c.Batch == nil {
		return 0
	}
	return c.Batch.Size
}

// A gathering is a batch that is not complete. It is its claim's, under the claim's lock.
type gathering struct {
	k      *claim
	of     group
	ms     []broker.Message
	lanes  []uint64 // as work.lanes
	firsts []int64  // as item.first
	bytes  int
}

// add takes a message in, and says whether the batch is complete by it.
func (g *gathering) add(m *broker.Message, lanes []uint64, first int64, b *Batch) bool {
	g.ms = append(g.ms, *m)
	g.lanes = append(g.lanes, lanes...)
	g.firsts = append(g.firsts, first)
	g.bytes += len(m.Key) + len(m.Value)
	return g.complete(b)
}

func (g *gathering) complete(b *Batch) bool { return len(g.ms) >= b.Size || g.bytes >= b.Bytes }

// gather takes messages of k into batches, and queues those that are complete. alone: each that has a lane is a batch of its own.
// It never blocks: the budget bounds what is here.
func (c *Consumer) gather(k *claim, ms []broker.Message, lanes []uint64, first int64, alone bool) {
	var full, begun []*gathering
	thawed := false
	k.mu.Lock()
	over := k.over != ""
	for i := range ms {
		if over {
			break
		}
		of := c.groupOf(&ms[i], lanePart(lanes, i, i+1))
		g := k.gathering(of)
		if g == nil {
			g = c.newGathering(k, of)
			begun = append(begun, g)
		}
		complete := g.add(&ms[i], lanePart(lanes, i, i+1), first, c.cfg.Batch)
		if of.lane != 0 {
			if alone || c.unfit(&ms[i]) != nil {
				complete = true
			} else if !complete {
				complete = c.absorb(g, &thawed)
			}
		}
		if complete {
			full = append(full, g)
			k.setGathering(of, nil)
		}
	}
	for _, g := range begun {
		if k.gathering(g.of) == g {
			c.lingers.add(time.Now().Add(c.cfg.Batch.Linger), g)
		}
	}
	k.mu.Unlock()
	if over {
		c.giveBack(k, backs(ms), lanes, k.why())
		return
	}
	c.pool.Expect(len(ms))
	for _, g := range full {
		c.queueBatch(g)
	}
	if thawed {
		c.thaw(k)
	}
}

// newGathering begins one. It needs k.mu.
func (c *Consumer) newGathering(k *claim, of group) *gathering {
	g := &gathering{k: k, of: of}
	if !of.byKey { // else most are small
		g.ms = make([]broker.Message, 0, c.cfg.Batch.Size)
	}
	k.setGathering(of, g)
	return g
}

// lingered queues a batch whose time is over, complete or not.
func (c *Consumer) lingered(g *gathering) {
	g.k.mu.Lock()
	mine := g.k.gathering(g.of) == g
	if mine {
		g.k.setGathering(g.of, nil)
	}
	g.k.mu.Unlock()
	if mine {
		c.queueBatch(g)
	}
}

// queueBatch queues a batch that is in nobody's hands.
func (c *Consumer) queueBatch(g *gathering) {
	r := new(work)
	r.initBatch(g)
	if g.k.enter(r) {
		c.pool.RequeueExpected(c.classOf(g.k, &g.ms[0]), r)
		return
	}
	c.pool.Expect(-len(g.ms))
	c.giveBack(g.k, backs(g.ms), g.lanes, g.k.why())
}

// takeGathering takes what is gathering of a claim that is over.
func (c *Consumer) takeGathering(k *claim) (ms []broker.Message, lanes []uint64) {
	k.mu.Lock()
	for g := range k.gatherings() {
		ms, lanes = append(ms, g.ms...), append(lanes, g.lanes...)
	}
	k.plain, k.byKey = nil, nil
	k.mu.Unlock()
	c.pool.Expect(-len(ms))
	return ms, lanes
}

// callBatch calls the handler with those that are not too large for it.
func (c *Consumer) callBatch(ctx context.Context, r *work) error {
	ms := make([]*Message, 0, len(r.ms))
	errs := make([]error, len(r.ms))
	for i := range r.ms {
		if errs[i] = c.unfit(&r.ms[i]); errs[i] == nil {
			ms = append(ms, &r.ms[i])
		}
	}
	if len(ms) == 0 {
		return &BatchError{errs}
	}
	err := c.cfg.Batch.Handler(ctx, ms)
	if len(ms) == len(r.ms) {
		return err
	}
	of := errorsOf(err, len(ms))
	for i := range errs {
		if errs[i] == nil {
			errs[i], of = of[0], of[1:]
		}
	}
	return &BatchError{errs}
}

// errorsOf is what err says of each of n messages.
func errorsOf(err error, n int) []error {
	var each *BatchError
	if errors.As(err, &each) {
		if len(each.Errs) == n {
			return each.Errs
		}
		err = fmt.Errorf("the batch handler told of %d messages, the batch has %d: %w", len(each.Errs), n, err)
	}
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// failedBatch decides about each message of a batch that was taken out of its run. It returns how many were acked.
func (c *Consumer) failedBatch(r *work, err error, late bool) (acked int) {
	errs := errorsOf(err, len(r.ms))
	if r.lanes != nil && c.cfg.Batch.ByKey && r.lanes[0] != 0 {
		return c.failedLane(r, errs, late)
	}
	var tokens, lanes []uint64
	for i, e := range errs {
		if e == nil {
			c.handled(r.ms[i : i+1])
			tokens = append(tokens, r.ms[i].Token)
			lanes = append(lanes, lanePart(r.lanes, i, i+1)...)
		}
	}
	if len(tokens) > 0 {
		c.ack(r.k, tokens, lanes)
	}
	for i, e := range errs {
		if e == nil {
			continue
		}
		if late {
			e = &lateError{e}
		}
		c.decideOn(r.item(i), e)
	}
	return len(tokens)
}
