package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/pool"
)

// A queue is where work waits for a worker: the pool and its classes. It returns what it refuses, because the claim is over or
// the consumer stops: who asked gives that back.
type queue struct {
	cfg     *Config
	tell    *teller
	pace    *pace
	pool    *pool.Pool[*work]
	started atomic.Bool // pool is set

	mu     sync.Mutex
	limits [2]int // min and max workers
}

// scanEvery is how often the pool looks at what workers hold: the precision of timeouts, and how long an ack may wait for a slow
// neighbour in the same work.
const (
	scanEvery = 10 * time.Millisecond
	// scanAlone is the same of a message that is alone with its worker, which nothing waits beside: most are done by then.
	scanAlone = 100 * time.Millisecond
)

// scanOne is when a message that is alone with its worker is first looked at: half way to its timeout at the latest, and sooner
// where others may wait for it in an order.
func (c *Config) scanOne() time.Duration {
	switch {
	case c.Order != OrderNone:
		return scanEvery
	case c.Timeout > 0:
		return min(scanAlone, c.Timeout/2)
	}
	return scanAlone
}

func newQueue(cfg *Config, tell *teller) *queue {
	return &queue{cfg: cfg, tell: tell, pace: &tell.pace, limits: [2]int{cfg.Pool.Min, cfg.Pool.Max}}
}

// start makes the pool, which starts its workers. calls has what the pool calls.
func (q *queue) start(calls pool.Config[*work]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	cfg := calls
	cfg.Min, cfg.Max = q.limits[0], q.limits[1]
	cfg.IdleTimeout, cfg.Policy, cfg.Gauge = q.cfg.Pool.IdleTimeout, q.cfg.Pool.Policy, q.cfg.Pool.Gauge
	cfg.Weights, cfg.Strict, cfg.Queue = q.cfg.weights(), q.cfg.Strict, q.cfg.Budget.Messages
	cfg.Scan, cfg.ScanOne = scanEvery, q.cfg.scanOne()
	cfg.MaxStuck, cfg.Count = q.cfg.MaxStuck, (*work).unstarted
	p, err := pool.New(cfg)
	if err != nil {
		return fmt.Errorf("starting the pool: %w", err)
	}
	q.pool = p
	q.started.Store(true)
	return nil
}

// setLimits changes the least and the most workers, now and at the start.
func (q *queue) setLimits(least, most int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	budget, share := q.cfg.Budget.Messages, q.cfg.mainBudget().Messages
	if least < 1 || most < least || most > share {
		of := ""
		if share < budget {
			of = fmt.Sprintf(", of which each source has %d", share)
		}
		return fmt.Errorf("%s: limits %d..%d, want 1 <= min <= max <= the budget of %d messages%s",
			q.cfg.title(), least, most, budget, of)
	}
	q.limits = [2]int{least, most}
	if q.started.Load() {
		return q.pool.SetLimits(least, most)
	}
	return nil
}

// stats are the pool's; before it is started, the limits.
func (q *queue) stats() (s pool.Stats) {
	if q.started.Load() {
		return q.pool.Stats()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.Min, s.Max = q.limits[0], q.limits[1]
	return s
}

// drain ends the pool. It waits for its workers until ctx ends.
func (q *queue) drain(ctx context.Context) { _, _ = q.pool.Drain(ctx) } // it counts workers, not handlers

// inHand are the works that workers have in hand.
func (q *queue) inHand() []*work { return q.pool.InHand() }

// load is a short look at the pool.
func (q *queue) load() pool.Load { return q.pool.Load() }

// submit queues new works of k, one lock for all that fits. It waits for room until ctx ends.
func (q *queue) submit(ctx context.Context, k *claim, ws []*work) (refused []*work) {
	classes := q.classesOf(k, ws)
	if !k.enter(ws...) {
		return ws
	}
	if left, err := q.submitAll(ctx, k, ws, classes); err != nil {
		return left
	}
	return nil
}

// submitAll queues works of those classes: one lock for those of a class that fit. left are those that were not taken.
func (q *queue) submitAll(ctx context.Context, k *claim, ws []*work, classes []int) (left []*work, err error) {
	if classes == nil {
		taken, err := q.pool.SubmitAll(ctx, k.feed.class, ws)
		return ws[taken:], err
	}
	for level := range q.cfg.levels() {
		class := k.feed.class + level
		var some []*work
		for i, w := range ws {
			if classes[i] == class {
				some = append(some, w)
			}
		}
		taken, e := q.pool.SubmitAll(ctx, class, some)
		left, err = append(left, some[taken:]...), errors.Join(err, e)
	}
	return left, err
}

// requeue queues what was let in before; it never blocks.
func (q *queue) requeue(w *work) (refused []*work) {
	class := q.classOf(w.k, &w.ms[0])
	if !w.k.enter(w) {
		return []*work{w}
	}
	q.pool.Requeue(class, w)
	return nil
}

// sweep takes works out that were emptied while they waited: no worker need come by for them.
func (q *queue) sweep() {
	for _, w := range q.pool.Sweep() {
		w.k.leave(w)
	}
}

// expect announces n messages that wait for others here; a negative n takes back what will not come.
func (q *queue) expect(n int) { q.pool.Expect(n) }

// requeueExpected is requeue for what was announced. last: by a worker that has nothing else to do, and comes back for it.
func (q *queue) requeueExpected(w *work, last bool) (refused []*work) {
	class, n := q.classOf(w.k, &w.ms[0]), len(w.ms)
	if !w.k.enter(w) {
		q.pool.Expect(-n)
		return []*work{w}
	}
	if last {
		q.pool.RequeueLast(class, n, w)
	} else {
		q.pool.RequeueExpected(class, n, w)
	}
	return nil
}

// follow queues messages whose turn has come in their lanes, in works of one claim and class each. last: a worker does that as
// the last of its work; it comes back for the first of them itself.
func (q *queue) follow(next []row, last bool) (refused []*work) {
	most := q.pace.quantum(len(next))
	for len(next) > 0 {
		n, k := 1, next[0].k
		if len(next[0].ms) > 1 {
			refused = append(refused, q.requeueExpected(runOf(next[0]), last)...)
			next, last = next[1:], false
			continue
		}
		class := q.classOf(k, &next[0].ms[0])
		for n < min(most, len(next)) && len(next[n].ms) == 1 && next[n].k == k && q.classOf(k, &next[n].ms[0]) == class {
			n++
		}
		refused = append(refused, q.requeueExpected(workOf(next[:n]), last)...)
		next, last = next[n:], false
	}
	return refused
}

// workOf makes a work of messages of one claim that waited, one in each row.
func workOf(rows []row) *work {
	w, numbers := new(work), make([]uint64, len(rows))
	for i := range rows {
		numbers[i] = rows[i].number
	}
	ms := rows[0].ms
	if len(rows) > 1 {
		ms = make([]broker.Message, len(rows))
		for i := range rows {
			ms[i] = rows[i].ms[0]
		}
	}
	w.init(rows[0].k, ms, numbers)
	return w
}

// longestRun bounds a run where handlers take next to nothing.
const longestRun = 128

// mostInRun is how many messages that follow in a lane go to a worker at once, which handles one after the other and acks them
// together. It is one where the source might lose some of them and not what comes behind, where they may be of several classes,
// and where they are gathered to batches.
func (q *queue) mostInRun(k *claim) int {
	if !k.feed.traits.Together || q.cfg.Priority != nil || q.cfg.Batch != nil {
		return 1
	}
	return q.pace.quantum(longestRun)
}

// runOf makes a work of messages that follow one another in a lane.
func runOf(r row) *work {
	w := &work{run: true}
	w.init(r.k, r.ms, []uint64{r.number})
	return w
}

// classesOf are the classes in which works of k wait for a worker; nil: all in the same. The class of a work is asked for before
// its claim has it: from then on that may empty it.
func (q *queue) classesOf(k *claim, ws []*work) (classes []int) {
	if q.cfg.Priority == nil {
		return nil
	}
	for _, w := range ws {
		classes = append(classes, q.classOf(k, &w.ms[0]))
	}
	return classes
}

// classOf is the class in which a message waits for a worker.
func (q *queue) classOf(k *claim, m *Message) int {
	return k.feed.class + q.levelOf(m)
}

// levelOf is the level of a message among those of its source.
func (q *queue) levelOf(m *Message) int {
	p := q.cfg.Priority
	if p == nil {
		return 0
	}
	level := len(p.Levels) // where Of panics
	q.tell.survive("Priority.Of", func() { level = p.Of(m) })
	return min(max(0, level), len(p.Levels)-1)
}

// levelsOf is levelOf for each of ms; nil: there is but one level.
func (q *queue) levelsOf(ms []broker.Message) (levels []int) {
	if q.cfg.Priority == nil {
		return nil
	}
	for i := range ms {
		levels = append(levels, q.levelOf(&ms[i]))
	}
	return levels
}
