package pool

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// testFloor is a floor whose workers have no goroutine: the test does what they would do, one step at a time.
type testFloor struct {
	floor[int]
	r       *rand.Rand
	workers []*Worker[int]
	waiting []*waiter[int] // submitters that were not woken yet
	held    []held[int]    // as of some steps ago
	next    int
	wrong   int // T's that were taken for stuck instead of another
	done    map[int]int
	refused map[int]bool
}

func newTestFloor(seed uint64) *testFloor {
	f := &testFloor{r: rand.New(rand.NewPCG(seed, 1)), done: map[int]int{}, refused: map[int]bool{}}
	cfg := Config[int]{
		Do: func(*Worker[int], int) {}, Min: 1 + f.r.IntN(3), Max: 4 + f.r.IntN(5), Queue: 1 + f.r.IntN(6), Weights: []int{2, 1},
		IdleTimeout: time.Hour, MaxStuck: 2,
	}.withDefaults()
	f.open(&cfg, func() *Worker[int] {
		w := &Worker[int]{cfg: &cfg, floor: &f.floor, wake: make(chan struct{}, 1)}
		f.workers = append(f.workers, w)
		return w
	})
	return f
}

// step does one thing at random.
func (f *testFloor) step() {
	switch x := f.r.IntN(20); {
	case x < 5:
		f.submit(1 + f.r.IntN(4))
	case x < 6:
		f.floor.splitOff(held[int]{w: &Worker[int]{place: place[int]{reports: true}}, class: f.r.IntN(2), seq: 1}, item[int]{f.id(), 1})
	case x < 7:
		f.floor.requeue(f.r.IntN(2), requeued{}, []int{f.id(), f.id()}, []int{1, 1})
	case x < 16:
		f.turn()
	case x < 17:
		f.floor.queue.quick = f.r.IntN(2) == 0
	case x < 18:
		o := f.observe()
		f.apply(Decision{From: o.Workers, Target: o.Min + f.r.IntN(o.Max-o.Min+1), Force: f.r.IntN(2) == 0, Observation: o},
			&pace{at: o.Now})
	case x < 19:
		f.scan()
	case len(f.workers) > 0:
		f.timedOut(f.workers[f.r.IntN(len(f.workers))])
	}
	f.collect()
}

// scan abandons workers for what they had in hand a while ago.
func (f *testFloor) scan() {
	for _, h := range f.held {
		was := h.w.state
		if f.r.IntN(8) == 0 {
			f.abandon(h.w, h.seq)
		}
		if h.w.state != was && h.w.cur != h.t {
			f.wrong++
		}
	}
	f.held, _ = f.floor.held(nil)
}

func (f *testFloor) id() int { f.next++; return f.next }

// submit lets many in through the door for one or for all.
func (f *testFloor) submit(n int) {
	class, ts, each := f.r.IntN(2), []int{}, []int{}
	for range n {
		ts, each = append(ts, f.id()), append(each, 1)
	}
	var x *waiter[int]
	var err error
	if n == 1 {
		x, err = f.enter(class, item[int]{ts[0], 1}, f.r.IntN(2) == 0)
	} else {
		x, err = f.enterAll(class, ts, each)
	}
	if err != nil {
		for _, t := range ts {
			f.refused[t] = true
		}
	}
	if x != nil {
		f.waiting = append(f.waiting, x)
	}
}

// collect is what submitters do that were woken, or give up.
func (f *testFloor) collect() {
	var rest []*waiter[int]
	for _, x := range f.waiting {
		select {
		case <-x.ch:
		default:
			if f.r.IntN(10) > 0 || !f.leave(x, errFull) {
				rest = append(rest, x)
				continue
			}
		}
		for _, t := range x.ts {
			f.refused[t] = true
		}
	}
	f.waiting = rest
}

// turn is that of some worker, if there is one.
func (f *testFloor) turn() {
	if len(f.workers) > 0 {
		f.run(f.workers[f.r.IntN(len(f.workers))])
	}
}

// run is a worker's turn: it ends its T, and perhaps its life.
func (f *testFloor) run(w *Worker[int]) {
	switch w.state {
	case idle:
		return
	case leaving:
		if len(w.wake) > 0 {
			<-w.wake
		}
		f.end(w, false)
		return
	}
	if len(w.wake) > 0 {
		if <-w.wake; w.told == busy { // it was given something and begins with it now
			w.began = w.since
			return
		}
	}
	if w.state == busy || w.state == abandoned {
		f.done[w.cur]++
		if f.r.IntN(4) == 0 { // what follows, as the last of its Do
			f.floor.requeue(f.r.IntN(2), requeued{last: true}, []int{f.id(), f.id()}, []int{1, 1})
		}
		if f.r.IntN(20) == 0 {
			f.end(w, true)
			return
		}
	}
	if f.floor.next(w, f.now()) == leaving {
		f.end(w, false)
	}
}

func (f *testFloor) end(w *Worker[int], goexit bool) {
	f.leaving(w, goexit)
	f.left(w)
	for i := range f.workers {
		if f.workers[i] == w {
			f.workers = append(f.workers[:i], f.workers[i+1:]...)
			return
		}
	}
}

// check compares what the floor counts with what is there.
func (f *testFloor) check() error {
	c, q := &f.crew, &f.queue
	at := map[int]string{}
	put := func(t int, where string) error {
		if was, ok := at[t]; ok || f.done[t] > 0 || f.refused[t] {
			return fmt.Errorf("%d is %s, and %s, done %d times, refused %v", t, where, was, f.done[t], f.refused[t])
		}
		at[t] = where
		return nil
	}
	live, withT, items, called := 0, 0, 0, 0
	for _, w := range f.workers {
		if w.called {
			called++
		}
		switch w.state {
		case busy:
			withT++
			fallthrough
		case abandoned:
			if err := put(w.cur, "in hand"); err != nil {
				return err
			}
		}
		if w.state != abandoned && w.state != leaving {
			live++
		}
	}
	for i := range q.classes {
		k := &q.classes[i]
		items += k.len
		for j := range k.len {
			if err := put(k.buf[(k.head+j)&(len(k.buf)-1)].t, "in the queue"); err != nil {
				return err
			}
		}
	}
	blocked := 0
	for _, x := range f.waiting {
		for _, t := range x.ts {
			if err := put(t, "with a submitter"); err != nil {
				return err
			}
		}
		if x.in != nil {
			blocked += x.n
		}
	}
	switch {
	case len(at)+len(f.done)+len(f.refused) != f.next:
		return fmt.Errorf("%d are somewhere, %d done, %d refused, of %d", len(at), len(f.done), len(f.refused), f.next)
	case live != c.live, withT != c.busy, c.inHand != withT:
		return fmt.Errorf("%d live for %d, %d busy for %d, %d in hand", c.live, live, c.busy, withT, c.inHand)
	case items != q.items, q.backlog != items+blocked:
		return fmt.Errorf("%d queued for %d, backlog %d for %d", q.items, items, q.backlog, items+blocked)
	case c.calling != (called == 1), called > 1, f.wrong > 0:
		return fmt.Errorf("%d called, for %v; %d wrongly abandoned", called, c.calling, f.wrong)
	case items > 0 && len(c.idle) > 0 && !c.calling:
		return fmt.Errorf("%d wait beside %d idle workers and none is called", items, len(c.idle))
	case c.running < c.live, c.live > 0 && c.size() < f.cfg.Min && !f.closed:
		return fmt.Errorf("%d running, %d live, %d too many, of at least %d", c.running, c.live, c.excess, f.cfg.Min)
	}
	for t, n := range f.done {
		if n != 1 {
			return fmt.Errorf("%d was done %d times", t, n)
		}
	}
	return nil
}

// TestFloor drives the floor without a goroutine, in any order of events: each T is in one place, what is counted is what is
// there, nothing waits beside an idle worker, and after a Drain all is done and all workers end.
func TestFloor(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		f := newTestFloor(seed)
		for i := range 2000 {
			if f.step(); i == 1500 {
				f.close()
				f.collect()
			}
			if i%8 == 0 || i >= 1500 && i < 1510 {
				if err := f.check(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
			}
		}
		for i := 0; len(f.workers) > 0; i++ {
			if i > 10_000 {
				t.Fatalf("seed %d: %d workers do not end: %+v", seed, len(f.workers), f.stats())
			}
			f.turn()
			f.collect()
		}
		select {
		case <-f.ending.over:
		default:
			t.Fatalf("seed %d: not over: %+v", seed, f.stats())
		}
		if err := f.check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestQuickWorkWaitsWithinTheBound: where T's are quick, a T goes to the queue and one worker is called for it. The idle workers
// that are not called yet let no more in than they can take.
func TestQuickWorkWaitsWithinTheBound(t *testing.T) {
	f := newTestFloor(1)
	f.queue.quick, f.queue.bound = true, 1
	for _, w := range f.workers {
		f.run(w)
	}
	free, in := len(f.crew.idle), 0
	if free == 0 {
		t.Fatal("no worker is idle")
	}
	for range 100 {
		if _, err := f.enter(0, item[int]{f.id(), 1}, false); err == nil {
			in++
		}
	}
	if most := max(free, f.queue.bound); in == 0 || in > most {
		t.Errorf("%d were let in with %d workers idle, want at most %d", in, free, most)
	}
	for range 100 {
		f.turn()
	}
	if len(f.crew.idle) != len(f.workers) || f.queue.items > 0 {
		t.Errorf("%d of %d workers are idle at the end, and %d wait", len(f.crew.idle), len(f.workers), f.queue.items)
	}
}
