package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/chance"
)

// letters publishes dead letters, and what goes to the retry topics, away from the workers: one that is down must not hold
// workers, nor what goes elsewhere. What waits for one topic is published together, and each letter is settled by what became
// of itself.
type letters struct {
	cfg    *Config
	who    string // names the consumer in what it publishes
	tell   *teller
	till   *till
	parked *parking
	later  *schedule[letter] // those whose publish failed

	mu    sync.Mutex
	boxes map[string]*outbox // by topic: one that is down holds nothing that goes to another
	open  map[*Message]bool  // not settled, wherever they are
	late  int                // of these, dead letters that could not be published so far
	wg    sync.WaitGroup
}

func newLetters(cfg *Config, tell *teller, t *till, p *parking) *letters {
	return &letters{
		cfg: cfg, who: cfg.who(), tell: tell, till: t, parked: p,
		later: newSchedule[letter](), boxes: map[string]*outbox{}, open: map[*Message]bool{},
	}
}

const (
	// publishTimeout bounds one publish, of dead letters or to a retry topic.
	publishTimeout = 10 * time.Second
	// refusedWait is how long a letter is held that the broker refuses for good, before it is tried again (limits can be raised).
	refusedWait = time.Minute
	// defaultConcurrency is how many publishes to a topic are under way at once.
	defaultConcurrency = 4
)

var publishBackoff = Backoff{Initial: 200 * time.Millisecond, Max: 10 * time.Second, Factor: 2, Jitter: 0.2}

// run publishes again what was delayed, until ctx ends.
func (d *letters) run(ctx context.Context) { d.later.run(ctx, d.enqueue) }

// add takes a letter over; it does not block.
func (d *letters) add(x letter) {
	x.item = x.keep()
	x.failed.Message = x.m
	x.began, x.last = d.tell.clock.wall(x.first), time.Now()
	if x.topic = x.step.Topic; !x.retries() {
		x.topic = d.targetOf(x.failed)
	}
	d.mu.Lock()
	d.open[x.m] = true
	d.mu.Unlock()
	d.enqueue(x)
}

// targetOf is where the letter of a failure goes.
func (d *letters) targetOf(f Failed) string {
	handler := ""
	if of := d.cfg.DeadLetter.HandlerOf; of != nil {
		d.tell.survive("DeadLetter.HandlerOf", func() { handler = of(f.Message) })
	}
	return d.cfg.DeadLetter.target(f.Class, handler)
}

// done forgets letters that are about to be settled.
func (d *letters) done(xs ...letter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range xs {
		delete(d.open, x.m)
		if x.tries > 0 {
			d.late--
		}
	}
}

// delayed is how many dead letters could not be published so far.
func (d *letters) delayed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.late
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
		xs := b.take()
		if len(xs) == 0 {
			b.active--
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		d.settle(xs)
	}
}

// wait blocks until all that publish have ended.
func (d *letters) wait() { d.wg.Wait() }

// settle publishes letters of one kind together. Of each it acks the message, or delays it, or gives it back when its time is
// over.
func (d *letters) settle(xs []letter) {
	start := time.Now()
	var own []letter
	var outs []broker.Outgoing
	var by broker.Publisher
	for _, x := range xs {
		if d.over(x) {
			d.done(x)
			d.till.giveBack(x.k, x.back(x.failed.Runs), x.lane, x.k.why())
			continue
		}
		var o broker.Outgoing
		o, by = d.compose(x)
		if f := x.k.feed; f.emitter != nil && f.carries(by) {
			d.emit(x, o, by, start)
			continue
		}
		own, outs = append(own, x), append(outs, o)
	}
	if len(own) == 0 {
		return
	}
	errs := d.publish(own, outs, by)
	d.published(own, errs, start)
	for i, err := range errs {
		if err != nil {
			d.failed(own[i], err)
		}
	}
}

// emit hands a letter over with its message's ack, where that is one thing.
func (d *letters) emit(x letter, o broker.Outgoing, by broker.Publisher, start time.Time) {
	if err := failing(func() error {
		o = broker.Prepared(withValues(x.k.ctx, x.failed.Context), by, []broker.Outgoing{o})[0]
		return x.k.feed.emitter.CheckEmit(&o)
	}); err != nil {
		d.failed(x, err)
		return
	}
	d.done(x)
	es := []broker.Emission{{Tokens: x.tokens(), Outs: []broker.Outgoing{o}}}
	if d.till.ackEmitting(x.k, es, x.lane) == nil { // else it came too late, and there is no letter
		d.say(x, start)
	}
}

// published acks the messages of those letters that are confirmed, one call for all of a claim.
func (d *letters) published(xs []letter, errs []error, start time.Time) {
	var there []letter
	for i, err := range errs {
		if err == nil {
			there = append(there, xs[i])
		}
	}
	d.done(there...)
	type settles struct{ tokens, lanes []uint64 }
	by := make(map[*claim]*settles)
	var order []*claim
	for _, x := range there {
		s := by[x.k]
		if s == nil {
			s = new(settles)
			by[x.k], order = s, append(order, x.k)
		}
		s.tokens, s.lanes = append(s.tokens, x.m.Token), append(s.lanes, x.lane...)
	}
	for _, k := range order {
		d.till.ack(k, by[k].tokens, by[k].lanes)
	}
	for _, x := range there {
		d.say(x, start)
	}
}

// say counts and tells of a letter that is there.
func (d *letters) say(x letter, start time.Time) {
	if x.retries() {
		d.tell.count.retryPublished.Add(1)
		d.tell.tell(RetryPublished{Failed: x.failed, Topic: x.step.Topic})
		return
	}
	d.tell.count.deadLettered.Add(1)
	d.tell.tell(DeadLettered{Failed: x.failed, Topic: x.topic, Took: time.Since(start)})
}

// failed decides about a letter that is not there: its message waits here after all, its headers are cut, or it is tried again.
func (d *letters) failed(x letter, err error) {
	switch {
	case x.retries():
		d.done(x)
		d.tell.tell(RetryPublishFailed{Message: x.m, Topic: x.step.Topic, Err: err})
		x.unsent++
		x.publish = time.Now().Add(publishBackoff.delay(x.unsent, chance.Float64()))
		x.failed.Delay = max(0, time.Until(x.due))
		d.parked.hold(x.item, x.failed)
	case errors.Is(err, broker.ErrRefused) && !errors.Is(err, broker.ErrNoTopic) && !x.cut:
		x.cut = true
		d.enqueue(x)
	default:
		d.delay(x, err)
	}
}

// over says whether x is for its message's next holder: the claim has ended, or the consumer shuts down, or one of both is about
// to and a publish has failed already.
func (d *letters) over(x letter) bool {
	return x.k.ctx.Err() != nil || x.tries > 0 && x.k.why() != ""
}

// delay holds x until its publish is tried again.
func (d *letters) delay(x letter, err error) {
	if x.tries++; x.tries == 1 {
		d.mu.Lock()
		d.late++
		d.mu.Unlock()
	}
	refused := errors.Is(err, broker.ErrRefused)
	wait := publishBackoff.delay(x.tries, chance.Float64())
	if refused {
		wait = refusedWait
		x.cut = false // it was not for its headers: perhaps for a right, and then they are taken with it
	}
	d.tell.tell(DeadLetterDelayed{Message: x.m, Err: err, Refused: refused, Delay: wait})
	d.later.add(time.Now().Add(wait), x)
	x.k.detain(x.lane)
	if d.over(x) { // perhaps nobody flushes any more
		d.flush(x.k)
	}
}

// flush makes every letter of k that was delayed due now: when its claim is over.
func (d *letters) flush(k *claim) {
	for _, x := range d.later.take(func(x letter) bool { return x.k == k }) {
		d.enqueue(x)
	}
}

// compose returns a letter as it is published, and who publishes it.
func (d *letters) compose(x letter) (broker.Outgoing, broker.Publisher) {
	name := d.cfg.Name
	o := outgoing(x, name)
	o.ID = letterID(x.m, d.who)
	if x.retries() {
		o.ID += fmt.Sprintf("/%d", x.failed.Runs) // each of its failures is a message of its own there
		if noRun(x.failed.Class) {                // and adds no run: a broker that drops repeats would drop it the second time
			o.ID += fmt.Sprintf("/%d", x.last.UnixNano())
		}
		return o, d.cfg.Retry.Topics.Publisher
	}
	to := d.cfg.DeadLetter
	o.Headers = slices.DeleteFunc(o.Headers, func(h broker.Header) bool { return foreign(to.Headers, h.Key) })
	for _, s := range to.Headers {
		o.Headers = append(o.Headers, styles[s](x, name)...)
	}
	return o, to.Publisher
}

// publish publishes letters of one kind with one call, and says what became of each.
func (d *letters) publish(xs []letter, outs []broker.Outgoing, by broker.Publisher) []error {
	ctx, cancel := publishing(xs)
	defer cancel()
	errs := publishEach(ctx, by, outs)
	if errs == nil {
		return make([]error, len(xs))
	}
	for i, err := range errs {
		switch {
		case err != nil && xs[i].retries():
			errs[i] = fmt.Errorf("publishing to retry topic %s: %w", outs[i].Topic, err)
		case err != nil:
			errs[i] = fmt.Errorf("publishing dead letter to %s: %w", xs[i].topic, err)
		}
	}
	return errs
}

// publishing is the context of a publish. It ends after publishTimeout, or when all claims of the letters have ended: one that
// ends must not cut off what is published for the others.
func publishing(xs []letter) (context.Context, context.CancelFunc) {
	k := xs[0].k
	if !slices.ContainsFunc(xs, func(x letter) bool { return x.k != k }) {
		return context.WithTimeout(withValues(k.ctx, xs[0].failed.Context), publishTimeout)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), publishTimeout)
	ends := []func() bool{}
	var left atomic.Int64
	seen := make(map[*claim]bool)
	left.Store(1) // until all are counted
	ended := func() {
		if left.Add(-1) == 0 {
			cancel()
		}
	}
	for _, x := range xs {
		if !seen[x.k] {
			seen[x.k] = true
			left.Add(1)
			ends = append(ends, context.AfterFunc(x.k.ctx, ended))
		}
	}
	ended()
	return ctx, func() {
		for _, end := range ends {
			end()
		}
		cancel()
	}
}

// each calls do with each message whose letter is not settled, under the lock.
func (d *letters) each(do func(*Message)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for m := range d.open {
		do(m)
	}
}
