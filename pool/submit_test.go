package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/pool"
)

type intWorker = *pool.Worker[int]

// gate is a Do that waits until told, and what it has seen.
type gate struct {
	open chan struct{}
	mu   sync.Mutex
	seen []int
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) do(_ intWorker, i int) {
	<-g.open
	g.mu.Lock()
	g.seen = append(g.seen, i)
	g.mu.Unlock()
}

func (g *gate) got() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestSubmittedWorkIsHandledOnce(t *testing.T) {
	const n = 100_000
	var seen [n]atomic.Int32
	p := newPool(t, pool.Config[int]{Do: func(_ intWorker, i int) { seen[i].Add(1) }})
	for i := range n {
		if err := p.Submit(context.Background(), 0, i); err != nil {
			t.Fatal(err)
		}
	}
	drain(t, p)
	for i := range seen {
		if got := seen[i].Load(); got != 1 {
			t.Fatalf("T %d was handled %d times", i, got)
		}
	}
}

func TestSubmitBlocksAtTheBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		p := newPool(t, pool.Config[int]{Max: 1, Queue: 2, Do: g.do})
		for i := range 3 { // one in hand, two in the queue
			if err := p.Submit(t.Context(), 0, i); err != nil {
				t.Fatal(err)
			}
		}
		if p.TrySubmit(0, 9) {
			t.Error("TrySubmit found room beyond the bound")
		}
		done := make(chan error, 1)
		go func() { done <- p.Submit(t.Context(), 0, 3) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Submit returned %v with the queue full", err)
		default:
		}
		if s := p.Stats(); s.Blocked != 1 || s.Queued != 2 || s.Backlog != 3 || s.InHand != 1 {
			t.Errorf("blocked %d, queued %d, backlog %d, in hand %d", s.Blocked, s.Queued, s.Backlog, s.InHand)
		}
		close(g.open)
		if err := <-done; err != nil {
			t.Error(err)
		}
		drain(t, p)
		if got := g.got(); !slices.Equal(got, []int{0, 1, 2, 3}) {
			t.Errorf("handled %v", got)
		}
	})
}

func TestSubmitGivesUpWithTheContextsCause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		p := newPool(t, pool.Config[int]{Max: 1, Queue: 1, Do: g.do})
		p.Requeue(0, 0)
		synctest.Wait()
		p.Requeue(0, 1)
		cause := errors.New("enough waited")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		if err := p.Submit(ctx, 0, 2); !errors.Is(err, cause) {
			t.Errorf("Submit: %v", err)
		}
		if err := p.Submit(ctx, 0, 3); !errors.Is(err, cause) {
			t.Errorf("Submit with an ended context: %v", err)
		}
		if s := p.Stats(); s.In != 0 || s.Blocked != 0 || s.Backlog != 1 {
			t.Errorf("in %d, blocked %d, backlog %d", s.In, s.Blocked, s.Backlog)
		}
		close(g.open)
		drain(t, p)
		if got := g.got(); !slices.Equal(got, []int{0, 1}) {
			t.Errorf("handled %v: a T that Submit gave back must not be among them", got)
		}
	})
}

func TestSubmitAllSaysHowManyItTook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		p := newPool(t, pool.Config[int]{Max: 1, Queue: 3, Do: g.do})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		taken, err := p.SubmitAll(ctx, 0, []int{0, 1, 2, 3, 4, 5})
		if taken != 4 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("taken %d, %v; want 4 and the deadline", taken, err)
		}
		go close(g.open)
		taken, err = p.SubmitAll(t.Context(), 0, []int{4, 5, 6, 7, 8, 9})
		if taken != 6 || err != nil {
			t.Errorf("taken %d, %v", taken, err)
		}
		drain(t, p)
		if got := g.got(); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("handled %v", got)
		}
		if taken, err := p.SubmitAll(t.Context(), 0, []int{1}); taken != 0 || !errors.Is(err, pool.ErrClosed) {
			t.Errorf("after Drain: taken %d, %v", taken, err)
		}
	})
}

func TestDrainRefusesWhoWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		p := newPool(t, pool.Config[int]{Max: 1, Queue: 2, Do: g.do})
		if _, err := p.SubmitAll(t.Context(), 0, []int{0, 1}); err != nil {
			t.Fatal(err)
		}
		var taken int
		var all, one error
		var wg sync.WaitGroup
		wg.Go(func() { taken, all = p.SubmitAll(t.Context(), 0, []int{2, 3, 4}) })
		wg.Go(func() { time.Sleep(time.Millisecond); one = p.Submit(t.Context(), 0, 5) })
		time.Sleep(time.Second)
		go func() { _, _ = p.Drain(context.Background()) }()
		wg.Wait()
		if taken != 1 || !errors.Is(all, pool.ErrClosed) || !errors.Is(one, pool.ErrClosed) {
			t.Errorf("taken %d, %v and %v", taken, all, one)
		}
		if err := p.Submit(t.Context(), 0, 6); !errors.Is(err, pool.ErrClosed) || p.TrySubmit(0, 6) {
			t.Errorf("while draining: %v", err)
		}
		p.Requeue(0, 7)
		close(g.open)
		synctest.Wait()
		if got := g.got(); !slices.Equal(got, []int{0, 1, 2, 7}) {
			t.Errorf("handled %v", got)
		}
		if s := p.Stats(); s.In != 3 || s.Done != 4 {
			t.Errorf("in %d, done %d", s.In, s.Done)
		}
	})
}

// A worker that puts work back when the queue is full would wait for room that only workers make.
func TestWorkersRequeueIntoAFullQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var p *pool.Pool[int]
		var handled atomic.Int32
		p = newPool(t, pool.Config[int]{Max: 2, Queue: 2, Do: func(_ intWorker, i int) {
			time.Sleep(time.Millisecond)
			handled.Add(1)
			if i > 0 {
				p.Requeue(0, i-1)
			}
		}})
		for range 10 {
			if err := p.Submit(t.Context(), 0, 5); err != nil {
				t.Fatal(err)
			}
		}
		drain(t, p)
		if got := handled.Load(); got != 60 {
			t.Errorf("handled %d, want 60", got)
		}
		if s := p.Stats(); s.In != 10 || s.Done != 60 {
			t.Errorf("in %d, done %d: what is requeued is no arrival", s.In, s.Done)
		}
	})
}

func TestRequeueAfterDrainIsHandled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var handled atomic.Int32
		p := newPool(t, pool.Config[int]{Do: func(intWorker, int) { time.Sleep(time.Second); handled.Add(1) }})
		drain(t, p)
		p.Requeue(0, 1, 2, 3)
		drain(t, p)
		if got := handled.Load(); got != 3 {
			t.Errorf("handled %d, want 3", got)
		}
		drain(t, p)
	})
}

func TestWeightsShareTheWorkers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		p := newPool(t, pool.Config[int]{Max: 1, Weights: []int{3, 1}, Do: g.do})
		p.Requeue(0, 0) // in hand
		synctest.Wait()
		for range 8 {
			p.Requeue(1, 1)
		}
		for range 9 {
			p.Requeue(0, 0)
		}
		close(g.open)
		drain(t, p)
		got := strings.Trim(fmt.Sprint(g.got()), "[]")
		if want := "0 0 0 0 1 0 0 0 1 0 0 0 1 1 1 1 1 1"; got != want && got != "0 0 0 1 0 0 0 1 0 0 0 1 0 1 1 1 1 1" {
			t.Errorf("order %s, want %s", got, want)
		}
	})
}

func TestABlockedClassDoesNotHoldUpAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		p := newPool(t, pool.Config[int]{Max: 1, Queue: 1, Weights: []int{1, 1}, Do: g.do})
		if _, err := p.SubmitAll(t.Context(), 0, []int{0, 1}); err != nil {
			t.Fatal(err)
		}
		if p.TrySubmit(0, 2) {
			t.Error("class 0 has room")
		}
		if !p.TrySubmit(1, 3) {
			t.Error("class 1 has none")
		}
		if err := p.Submit(t.Context(), 2, 0); err == nil || !strings.Contains(err.Error(), "class 2") {
			t.Errorf("class 2: %v", err)
		}
		close(g.open)
		drain(t, p)
	})
}

func TestQueueTimeBoundsTheQueueByWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, pool.Config[int]{Min: 10, Max: 10, Queue: 10_000, QueueTime: time.Second,
			Do: func(intWorker, int) { time.Sleep(10 * time.Millisecond) }})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		most := 0
		go func() {
			for ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
				most = max(most, p.Stats().Queued)
			}
		}()
		for p.Submit(ctx, 0, 0) == nil {
		}
		synctest.Wait()
		if most < 900 || most > 1100 { // 10 workers finish 1000 a second
			t.Errorf("the queue held up to %d, want about 1000", most)
		}
		drain(t, p)
	})
}

// However many workers Max allows, QueueTime leaves two T's for each, as far as Queue does.
func TestQueueTimeWithoutALimitOfWorkers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate()
		p := newPool(t, pool.Config[int]{Max: math.MaxInt, Policy: new(lookout), Queue: 100_000, QueueTime: time.Second, Do: g.do})
		n := 0
		for p.TrySubmit(0, 0) {
			n++
		}
		if n < 100_000 {
			t.Errorf("the queue is full with %d", n)
		}
		close(g.open)
		drain(t, p)
	})
}

func TestManySubmittersManyGivingUp(t *testing.T) {
	var handled, taken atomic.Int64
	p := newPool(t, pool.Config[int]{Max: 4, Queue: 4, Do: func(intWorker, int) { handled.Add(1) }})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 500 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(j%7)*10*time.Microsecond)
				if i%2 == 0 {
					n, _ := p.SubmitAll(ctx, 0, make([]int, j%9))
					taken.Add(int64(n))
				} else if p.Submit(ctx, 0, j) == nil {
					taken.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	drain(t, p)
	if handled.Load() != taken.Load() || p.Stats().In != taken.Load() {
		t.Errorf("taken %d, handled %d, in %d", taken.Load(), handled.Load(), p.Stats().In)
	}
}

// lookout is a fixed policy that keeps what it saw last.
type lookout struct {
	mu   sync.Mutex
	seen pool.Observation
}

func (l *lookout) Step(o pool.Observation) pool.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = o
	return pool.Decision{Target: o.Workers, Next: 10 * time.Millisecond}
}

// TestExpectedIsTakenBackWhole: what was announced waits no more when it was requeued, though it was emptied meanwhile. Else the
// manager would see a backlog for ever that nobody has.
func TestExpectedIsTakenBackWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lookout
		var p *pool.Pool[int]
		p = newPool(t, pool.Config[int]{Min: 1, Max: 1, Policy: &l, Count: func(n int) int { return n }, Do: func(_ intWorker, n int) {
			if n == 1 {
				p.RequeueExpected(0, 4, 0)
				p.RequeueLast(0, 3, 3)
			}
		}})
		expected := func() int {
			time.Sleep(3 * time.Second) // a manager of one worker looks once a second
			l.mu.Lock()
			defer l.mu.Unlock()
			if n := p.Stats().Expected; n != l.seen.Expected {
				t.Errorf("the manager has seen %d that are expected, Stats tells of %d", l.seen.Expected, n)
			}
			return l.seen.Expected
		}
		p.Expect(7)
		if n := expected(); n != 7 {
			t.Fatalf("%d are expected, want 7", n)
		}
		if err := p.Submit(t.Context(), 0, 1); err != nil {
			t.Fatal(err)
		}
		if n := expected(); n != 0 {
			t.Errorf("%d are expected still", n)
		}
		if _, err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
