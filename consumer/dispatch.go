package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/pool"
)

// A feed is one source and what its dispatcher needs.
type feed struct {
	source  broker.Source
	class   int // its class in the pool's queue
	traits  broker.Traits
	retries bool // it reads the retry topics
	up      atomic.Bool
}

// dispatch receives from a feed until its source is stopped or fails. submits ends when the consumer stops: what the full queue
// has not taken by then goes back.
func (c *Consumer) dispatch(submits context.Context, f *feed) error {
	var (
		slab []broker.Message // fresh ones: a handler may keep *Message
		cut  = cutter{c: c}
		last *claim
		got  int // last time
	)
	for {
		c.gate.wait(submits)
		if few := c.cfg.Chunk / 4; got < few {
			if l := c.pool.Load(); mayRest(got, l.Queued, l.PerSecond) {
				nap(submits, restTime)
			}
		}
		if len(slab) < max(1, c.cfg.Chunk/4) {
			slab = make([]broker.Message, c.cfg.Chunk)
		}
		n, err := f.source.Receive(slab)
		got = n
		if errors.Is(err, broker.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		ms := slab[:n:n]
		slab = slab[n:]
		c.held.Add(int64(n))
		c.received.Add(int64(n))
		if last == nil || last.Claim != ms[0].Claim {
			last = c.claimOf(f, ms[0].Claim)
		}
		if c.cfg.Batch != nil && !c.ordered() {
			c.gather(last, ms, nil, 0, false)
			continue
		}
		if c.ordered() {
			c.dispatchInOrder(submits, last, ms, &cut)
			continue
		}
		q, each := c.pace.quantum(n), false
		if q == 1 {
			q = spell(c.pace.call(), c.pool.Load())
			each = q > 1
		}
		c.submit(submits, last, cut.cut(last, ms, nil, q, each))
	}
}

const (
	// spellTime is how much work of handlers longer than handOff a worker takes at a time when there is plenty. A message waits no
	// longer than that behind its neighbours, or two scans where one of them takes longer than usual.
	spellTime = 6 * time.Millisecond
	maxSpell  = 4
)

// spell is how many messages a worker takes at a time where one makes a hand-off of its own, but a pool with all its workers has
// a lasting backlog: each would wait in the queue anyway. To take them one by one costs a third of all that such a message costs.
func spell(call time.Duration, l pool.Load) int {
	if call <= 0 || l.Live < l.Max || l.Backlog < 2*maxSpell*l.Max {
		return 1
	}
	return int(max(1, min(maxSpell, spellTime/call)))
}

// restTime is for how long a dispatcher lets room gather at its source.
const restTime = time.Millisecond

// mayRest says whether a dispatcher that got few messages may rest before it asks again: the queue holds work for some rests, so
// no worker waits for it, and much more will be there afterwards. Where the budget is used up, each ack would wake it for one
// message else.
func mayRest(got, queued int, perSecond float64) bool {
	inRest := perSecond * restTime.Seconds()
	return got > 0 && inRest >= 8*float64(got) && float64(queued) >= 4*inRest
}

// nap waits for d, or until ctx ends.
func nap(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// submit queues runs: one lock for all that fits.
func (c *Consumer) submit(ctx context.Context, k *claim, runs []*work) {
	if !k.enter(runs...) {
		c.takeBack(k, runs)
	} else if left, err := c.submitAll(ctx, k, runs); err != nil {
		c.takeBack(k, left)
	}
}

// A cutter makes runs of chunks. It allocates them many at a time: slow handlers get a run for each message.
type cutter struct {
	c       *Consumer
	slab    []work
	out     []*work
	numbers []uint64 // of lanes; fresh ones, as runs keep theirs
	stash   stash
	tokens  []uint64 // fresh ones, as runs keep theirs
}

const (
	runsAtOnce   = 30  // 4 KiB
	tokensAtOnce = 512 // the same
)

// cut makes runs of q messages each, which are acked one by one or at the end of their run. What it returns is good until the
// next call.
func (x *cutter) cut(k *claim, ms []broker.Message, lanes []uint64, q int, each bool) []*work {
	clear(x.out)
	x.out = x.out[:0]
	for len(ms) > 0 {
		if len(x.slab) == 0 {
			x.slab = make([]work, runsAtOnce)
		}
		n := min(q, len(ms))
		if c := x.c; c.cfg.Priority != nil { // a run is of one class
			for class, i := c.classOf(k, &ms[0]), 1; i < n; i++ {
				if c.classOf(k, &ms[i]) != class {
					n = i
				}
			}
		}
		r := &x.slab[0]
		x.slab = x.slab[1:]
		r.init(k, ms[:n:n], nil)
		if r.each = each; n > 1 {
			r.tokens = x.tokensOf(r.ms)
		}
		if ms = ms[n:]; lanes != nil {
			r.lanes, lanes = lanes[:n:n], lanes[n:]
		}
		x.out = append(x.out, r)
	}
	return x.out
}

// tokensOf are the messages' tokens in one piece.
func (x *cutter) tokensOf(ms []broker.Message) []uint64 {
	n := len(ms)
	if len(x.tokens) < n {
		x.tokens = make([]uint64, max(n, tokensAtOnce))
	}
	tokens := x.tokens[:n:n]
	x.tokens = x.tokens[n:]
	for i := range ms {
		tokens[i] = ms[i].Token
	}
	return tokens
}

// takeBack gives back what is unstarted of runs that are in no queue.
func (c *Consumer) takeBack(k *claim, runs []*work) {
	var back []broker.Back
	var lanes []uint64
	for _, r := range runs {
		_, _, u0, u1 := r.steal()
		k.leave(r)
		back = append(back, backs(r.part(u0, u1))...)
		lanes = append(lanes, r.lanesOf(u0, u1)...)
	}
	reason := k.why()
	if reason == "" {
		reason = "drain"
	}
	c.giveBack(k, back, lanes, reason)
}
