package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/chance"
)

// letter is a message on its way to the dead letters, or to a retry topic. It stays claimed and in the budget until its publish
// is confirmed.
type letter struct {
	item
	failed Failed
	topic  string // where it goes
	last   time.Time
	tries  int32
	cut    bool // refused with all headers; now with ours only
	// step and due are set for a retry topic: which, and when its message's delay has passed.
	step RetryStep
	due  time.Time
}

// spills says whether x is for a retry topic.
func (x *letter) spills() bool { return x.step.Topic != "" }

// letters publishes dead letters, and what goes to the retry topics, away from the workers, a few at once to each topic: one
// that is down must not hold workers, nor what goes elsewhere.
type letters struct {
	c     *Consumer
	later *schedule[letter] // those whose publish failed

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

const (
	// publishTimeout bounds one publish of a dead letter.
	publishTimeout = 10 * time.Second
	// refusedWait is how long a letter is held that the broker refuses for good, before it is tried again (limits can be raised).
	refusedWait = time.Minute
	// defaultConcurrency is how many letters are published at once to a topic.
	defaultConcurrency = 4
	// maxErrorBytes of a failure's text go into a header.
	maxErrorBytes = 1 << 10
)

var publishBackoff = Backoff{Initial: 200 * time.Millisecond, Max: 10 * time.Second, Factor: 2, Jitter: 0.2}

// add takes a letter over; it does not block.
func (d *letters) add(x letter) {
	x.item = x.keep()
	x.failed.Message = x.m
	x.last = time.Now()
	if x.topic = x.step.Topic; !x.spills() {
		x.topic = d.c.cfg.DeadLetter.targetOf(x.failed)
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
	if to := d.c.cfg.DeadLetter; to != nil {
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

// settle publishes x and acks its message, or puts it off, or gives it back when its time is over.
func (d *letters) settle(x letter) {
	c := d.c
	if d.over(x) {
		d.done(x)
		c.giveBack(x.k, x.back(x.failed.Runs), x.lane, x.k.why())
		return
	}
	start := time.Now()
	err := d.publish(x)
	switch {
	case x.spills():
		d.spilled(x, err)
	case err == nil:
		c.count.deadLettered.Add(1)
		d.done(x)
		c.ack(x.k, x.tokens(), x.lane)
		c.tell(DeadLettered{Failed: x.failed, Topic: x.topic, Took: time.Since(start)})
	case errors.Is(err, broker.ErrRefused) && !x.cut:
		x.cut = true
		d.enqueue(x)
	default:
		d.putOff(x, err)
	}
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
	d.c.tell(DeadLetterDelayed{Message: x.failed.Message, Err: err, Refused: refused, Delay: wait})
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
	if x.spills() {
		o := outgoing(x, d.c.cfg.Name)
		o.ID += fmt.Sprintf("/%d", x.failed.Runs) // each of its failures is a message of its own there
		o.Headers = append(o.Headers, header(broker.HeaderRetryAt, time.Now().Add(x.step.Delay).UTC().Format(time.RFC3339Nano)))
		if err := d.c.cfg.Retry.Topics.Publisher.Publish(ctx, []broker.Outgoing{o}); err != nil {
			return fmt.Errorf("publishing to retry topic %s: %w", o.Topic, err)
		}
		return nil
	}
	to := d.c.cfg.DeadLetter
	o := outgoing(x, d.c.cfg.Name)
	o.Headers = slices.DeleteFunc(o.Headers, func(h broker.Header) bool { return foreign(to.Headers, h.Key) })
	for _, s := range to.Headers {
		o.Headers = append(o.Headers, styles[s](x, d.c.cfg.Name)...)
	}
	if err := to.Publisher.Publish(ctx, []broker.Outgoing{o}); err != nil {
		return fmt.Errorf("publishing dead letter to %s: %w", x.topic, err)
	}
	return nil
}

func header(key, value string) broker.Header { return broker.Header{Key: key, Value: []byte(value)} }

// outgoing is the letter as it is published: payload and key untouched, the message's own headers unless they were cut, then
// ours.
func outgoing(x letter, name string) broker.Outgoing {
	m := x.failed.Message
	o := broker.Outgoing{Topic: x.topic, Key: m.Key, Value: m.Value, ID: letterID(m, name)}
	for k, v := range m.Headers.All() {
		if x.cut && k != broker.HeaderReplays { // that count goes with it whatever happens: it ends a circle of replays
			continue
		}
		if !broker.IsLetterHeader(k) {
			o.Headers = append(o.Headers, broker.Header{Key: k, Value: v})
		}
	}
	set := func(k, v string) { o.Headers = append(o.Headers, header(k, v)) }
	set(broker.HeaderOriginalTopic, m.Topic)
	if m.Partition >= 0 {
		set(broker.HeaderOriginalPartition, strconv.Itoa(int(m.Partition)))
	}
	if m.Offset >= 0 {
		set(broker.HeaderOriginalOffset, strconv.FormatInt(m.Offset, 10))
	}
	if m.ID != "" {
		set(broker.HeaderOriginalID, headerText(m.ID))
	}
	set(broker.HeaderOriginalTime, m.Time().UTC().Format(time.RFC3339Nano))
	set(broker.HeaderAttempts, strconv.Itoa(int(x.failed.Runs)))
	set(broker.HeaderFirstFailure, time.Unix(0, x.first).UTC().Format(time.RFC3339Nano))
	set(broker.HeaderLastFailure, x.last.UTC().Format(time.RFC3339Nano))
	set(broker.HeaderErrorClass, x.failed.Class)
	set(broker.HeaderError, headerText(x.failed.Err.Error()))
	set(broker.HeaderHandler, name)
	return o
}

// letterID names the letter, so that a second copy, published after a crash between publish and ack, can be told and dropped. The
// time is in it because a recreated stream uses its sequences again.
func letterID(m *Message, name string) string {
	return fmt.Sprintf("%s/%s/%d/%d/%s/%d", name, m.Topic, m.Partition, m.Offset, m.ID, m.Nanos)
}

// headerText makes a text fit for a header: one line, valid UTF-8, bounded.
func headerText(s string) string {
	b := make([]byte, 0, min(len(s), maxErrorBytes))
	for _, r := range s {
		if len(b)+utf8.RuneLen(r) > maxErrorBytes {
			break
		}
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		b = utf8.AppendRune(b, r)
	}
	return string(b)
}
