package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/chance"
)

// letters publishes dead letters, and what goes to the retry topics, away from the workers, a few at once to each topic: one
// that is down must not hold workers, nor what goes elsewhere.
type letters struct {
	cfg    *Config
	tell   *teller
	till   *till
	parked *parking
	later  *schedule[letter] // those whose publish failed

	mu    sync.Mutex
	boxes map[string]*outbox // by topic: one that is down holds nothing that goes to another
	open  map[*Message]bool  // not settled, wherever they are
	wg    sync.WaitGroup
}

// An outbox is what waits to be published to one topic.
type outbox struct {
	queue  []letter
	active int // goroutines that publish
}

func newLetters(cfg *Config, tell *teller, t *till, p *parking) *letters {
	return &letters{
		cfg: cfg, tell: tell, till: t, parked: p,
		later: newSchedule[letter](), boxes: map[string]*outbox{}, open: map[*Message]bool{},
	}
}

const (
	// publishTimeout bounds one publish of a dead letter.
	publishTimeout = 10 * time.Second
	// refusedWait is how long a letter is held that the broker refuses for good, before it is tried again (limits can be raised).
	refusedWait = time.Minute
	// defaultConcurrency is how many letters are published at once to a topic.
	defaultConcurrency = 4
)

var publishBackoff = Backoff{Initial: 200 * time.Millisecond, Max: 10 * time.Second, Factor: 2, Jitter: 0.2}

// run publishes again what was put off, until ctx ends.
func (d *letters) run(ctx context.Context) { d.later.run(ctx, d.enqueue) }

// add takes a letter over; it does not block.
func (d *letters) add(x letter) {
	x.item = x.keep()
	x.failed.Message = x.m
	x.last = time.Now()
	if x.topic = x.step.Topic; !x.retries() {
		x.topic = d.cfg.DeadLetter.targetOf(x.failed)
	}
	d.mu.Lock()
	d.open[x.m] = true
	d.mu.Unlock()
	d.enqueue(x)
}

// done forgets a letter that is about to be settled.
func (d *letters) done(x letter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, x.m)
}

func (d *letters) enqueue(x letter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.boxes[x.topic]
	if b == nil {
		b = &outbox{}
		d.boxes[x.topic] = b
	}
	b.queue = append(b.queue, x)
	if b.active < d.concurrency() {
		b.active++
		d.wg.Go(func() { d.work(b) })
	}
}

func (d *letters) concurrency() int {
	if to := d.cfg.DeadLetter; to != nil {
		return to.Concurrency
	}
	return defaultConcurrency
}

// work publishes what is in a box until nothing waits there.
func (d *letters) work(b *outbox) {
	for {
		d.mu.Lock()
		if len(b.queue) == 0 {
			b.active--
			d.mu.Unlock()
			return
		}
		x := b.queue[0]
		b.queue[0] = letter{}
		b.queue = b.queue[1:]
		d.mu.Unlock()
		d.settle(x)
	}
}

// wait blocks until all that publish have ended.
func (d *letters) wait() { d.wg.Wait() }

// settle publishes x and acks its message, or puts it off, or gives it back when its time is over.
func (d *letters) settle(x letter) {
	if d.over(x) {
		d.done(x)
		d.till.giveBack(x.k, x.back(x.failed.Runs), x.lane, x.k.why())
		return
	}
	start := time.Now()
	err := d.publish(x)
	switch {
	case x.retries():
		d.retryPublished(x, err)
	case err == nil:
		d.tell.count.deadLettered.Add(1)
		d.done(x)
		d.till.ack(x.k, x.tokens(), x.lane)
		d.tell.tell(DeadLettered{Failed: x.failed, Topic: x.topic, Took: time.Since(start)})
	case errors.Is(err, broker.ErrRefused) && !x.cut:
		x.cut = true
		d.enqueue(x)
	default:
		d.putOff(x, err)
	}
}

// retryPublished ends a letter to a retry topic: it is there, or its message waits here after all.
func (d *letters) retryPublished(x letter, err error) {
	d.done(x)
	if err == nil {
		d.tell.count.retryPublished.Add(1)
		d.till.ack(x.k, x.tokens(), x.lane)
		d.tell.tell(RetryPublished{Failed: x.failed, Topic: x.step.Topic})
		return
	}
	d.tell.tell(RetryPublishFailed{Message: x.m, Topic: x.step.Topic, Err: err})
	x.failed.Delay = max(0, time.Until(x.due))
	d.parked.hold(x.item, x.failed)
}

// over says whether x is for its message's next holder: the claim has ended, or the consumer shuts down, or one of both is about
// to and a publish has failed already.
func (d *letters) over(x letter) bool {
	return x.k.ctx.Err() != nil || x.tries > 0 && x.k.why() != ""
}

// putOff holds x until its publish is tried again.
func (d *letters) putOff(x letter, err error) {
	x.tries++
	refused := errors.Is(err, broker.ErrRefused)
	wait := publishBackoff.delay(x.tries, chance.Float64())
	if refused {
		wait = refusedWait
	}
	d.tell.tell(DeadLetterDelayed{Message: x.m, Err: err, Refused: refused, Delay: wait})
	d.later.add(time.Now().Add(wait), x)
	if d.over(x) { // perhaps nobody flushes any more
		d.flush(x.k)
	}
}

// flush makes every letter of k that was put off due now: when its claim is over.
func (d *letters) flush(k *claim) {
	for _, x := range d.later.take(func(x letter) bool { return x.k == k }) {
		d.enqueue(x)
	}
}

func (d *letters) publish(x letter) error {
	ctx, cancel := context.WithTimeout(x.k.ctx, publishTimeout)
	defer cancel()
	name := d.cfg.Name
	o := outgoing(x, name)
	if x.retries() {
		o.ID += fmt.Sprintf("/%d", x.failed.Runs) // each of its failures is a message of its own there
		if err := d.cfg.Retry.Topics.Publisher.Publish(ctx, []broker.Outgoing{o}); err != nil {
			return fmt.Errorf("publishing to retry topic %s: %w", o.Topic, err)
		}
		return nil
	}
	to := d.cfg.DeadLetter
	o.Headers = slices.DeleteFunc(o.Headers, func(h broker.Header) bool { return foreign(to.Headers, h.Key) })
	for _, s := range to.Headers {
		o.Headers = append(o.Headers, styles[s](x, name)...)
	}
	if err := to.Publisher.Publish(ctx, []broker.Outgoing{o}); err != nil {
		return fmt.Errorf("publishing dead letter to %s: %w", x.topic, err)
	}
	return nil
}

// each calls do with each message whose letter is not settled, under the lock.
func (d *letters) each(do func(*Message)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for m := range d.open {
		do(m)
	}
}
