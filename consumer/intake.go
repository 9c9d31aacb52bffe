package consumer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/pool"
)

// An intake receives from the sources and passes on what came: to its lanes, to the batches, to the queue.
type intake struct {
	cfg     *Config
	feeds   feeds
	claims  *claims
	revoker *revoker
	retries *retries
	queue   *queue
	till    *till
	tell    *teller

	_        line
	received atomic.Int64
	gate     gate
	_        line
}

// run receives from all sources until ctx ends or one of them fails. When it returns, all that was ever received is in the queue,
// parked, or settled. stopping is called once, when receiving ends.
func (in *intake) run(ctx context.Context, stopping func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	unhook := context.AfterFunc(ctx, in.feeds.stop)
	defer unhook()
	errs := make([]error, len(in.feeds))
	var dispatchers sync.WaitGroup
	for i, f := range in.feeds {
		dispatchers.Go(func() {
			if f.retries {
				errs[i] = in.dispatchRetries(ctx, f)
			} else {
				errs[i] = in.dispatch(ctx, f)
			}
			stop() // a source that cannot go on ends the consumer
		})
	}
	<-ctx.Done()
	stopping()
	dispatchers.Wait()
	in.feeds.stop()
	return errors.Join(errs...)
}

// dispatch receives from a feed until its source is stopped or fails. submits ends when the consumer stops: what the full queue
// has not taken by then goes back.
func (in *intake) dispatch(submits context.Context, f *feed) error {
	var (
		slab slab
		cut  = cutter{queue: in.queue, classes: in.cfg.Priority != nil}
		last *claim
		got  int // last time
	)
	slab.most, slab.whole = in.cfg.chunks()
	for {
		in.gate.wait(submits)
		in.rest(submits, got)
		if slab.renew() {
			cut.renew()
		}
		cut.call = f.calls.Add(1)
		n, err := f.source.Receive(slab.free)
		got = n
		if errors.Is(err, broker.ErrClosed) {
			return stoppedBy(submits)
		}
		if err != nil {
			return err // which says what was being done, as an adapter's errors do
		}
		ms := slab.take(n)
		if f.leases != nil {
			cut.now = in.tell.clock.at(time.Now())
		}
		in.till.received(n)
		in.received.Add(int64(n))
		if last == nil || last.Claim != ms[0].Claim {
			last = in.claimOf(f, ms[0].Claim)
		}
		in.pass(submits, last, ms, &cut, &slab)
	}
}

// stoppedBy is what a source's end comes to: nothing where we stopped it, for which submits has ended before.
func stoppedBy(submits context.Context) error {
	if submits.Err() != nil {
		return nil
	}
	return errStopped
}

var errStopped = errors.New("the source was stopped or closed by somebody else: that is Run's part, " +
	"and a consumer wants a source of its own")

// pass passes a chunk on, which was taken from a slab.
func (in *intake) pass(submits context.Context, k *claim, ms []broker.Message, cut *cutter, from *slab) {
	switch {
	case in.cfg.ordered():
		in.passInOrder(submits, k, ms, cut, from)
	case in.cfg.Batch != nil:
		in.passBatches(submits, k, ms, cut)
	default:
		q, each := in.queue.pace.quantum(len(ms)), false
		if q == 1 {
			q = microBatch(in.queue.pace.call(), in.queue.load())
			each = q > 1
		}
		in.till.submit(submits, k, cut.cut(k, ms, nil, q, each))
	}
}

// passBatches is pass where messages are handled in batches: those that are whole as they came are queued, the rest gathers.
func (in *intake) passBatches(submits context.Context, k *claim, ms []broker.Message, cut *cutter) {
	if in.cfg.gathersAll() {
		var full []*work
		full, ms = cut.whole(k, ms, in.till.batches)
		in.till.submit(submits, k, full)
	}
	if len(ms) > 0 {
		in.till.gather(k, ms, nil, past{}, false)
	}
}

// claimOf finds the engine's side of a claim; it is followed from its first message on.
func (in *intake) claimOf(f *feed, b *broker.Claim) *claim {
	k, fresh := in.claims.of(f, b)
	if fresh {
		in.revoker.follow(k)
	}
	return k
}

const (
	// microBatchTime is how much work of handlers longer than handOff a worker takes at a time when there is plenty. A message waits
	// no longer than that behind its neighbours, or two scans where one of them takes longer than usual.
	microBatchTime = 6 * time.Millisecond
	maxMicroBatch  = 4
)

// microBatch is how many messages a worker takes at a time where one makes a hand-off of its own, but a pool with all its workers
// has a lasting backlog: each would wait in the queue anyway. To take them one by one costs a third of all that such a message
// costs.
func microBatch(call time.Duration, l pool.Load) int {
	if call <= 0 || l.Live < l.Max || l.Backlog < 2*maxMicroBatch*l.Max {
		return 1
	}
	return int(max(1, min(maxMicroBatch, microBatchTime/call)))
}

// restTime is for how long a dispatcher lets room gather at its source.
const restTime = time.Millisecond

// rest waits before a source is asked again that gave few messages, where that costs nobody anything.
func (in *intake) rest(ctx context.Context, got int) {
	if got >= in.cfg.Chunk/4 {
		return
	}
	l := in.queue.load()
	if !mayRest(got, l.Queued, l.PerSecond) {
		return
	}
	t := time.NewTimer(restTime)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// mayRest says whether a dispatcher that got few messages may rest before it asks again: the queue holds work for some rests, so
// no worker waits for it, and much more will be there afterwards. Where the budget is used up, each ack would wake it for one
// message else.
func mayRest(got, queued int, perSecond float64) bool {
	inRest := perSecond * restTime.Seconds()
	return got > 0 && inRest >= 8*float64(got) && float64(queued) >= 4*inRest
}
