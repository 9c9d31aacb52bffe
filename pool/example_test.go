package pool_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/pool"
)

func Example() {
	var sum atomic.Int64
	p, err := pool.New(pool.Config[int]{
		Max: 16,
		Do:  func(_ *pool.Worker[int], n int) { sum.Add(int64(n)) },
	})
	if err != nil {
		log.Fatal(err)
	}
	for n := range 100 {
		if err := p.Submit(context.Background(), 0, n); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := p.Drain(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum.Load())
	// Output: 4950
}

// Submit blocks while the queue is full: this is how a slow pool holds back a fast source. What it does not take stays the
// caller's.
func ExamplePool_Submit() {
	release := make(chan struct{})
	p, err := pool.New(pool.Config[string]{Max: 1, Queue: 1, Do: func(*pool.Worker[string], string) { <-release }})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range []string{"in hand", "waits"} {
		if err := p.Submit(context.Background(), 0, s); err != nil {
			log.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := p.Submit(ctx, 0, "stays mine"); err != nil {
		fmt.Println("stays mine -", err)
	}
	close(release)
	_, _ = p.Drain(context.Background())
	fmt.Println(errors.Is(p.Submit(context.Background(), 0, "late"), pool.ErrClosed))
	// Output:
	// stays mine - context deadline exceeded
	// true
}

func ExampleGroup() {
	p, err := pool.NewTasks(pool.Config[pool.Task]{Max: 8})
	if err != nil {
		log.Fatal(err)
	}
	g := pool.NewGroup(context.Background(), p, pool.CancelOnError())
	var done atomic.Int32
	for range 20 {
		g.Go(func(context.Context) error { done.Add(1); return nil })
	}
	if err := g.Wait(); err != nil {
		log.Fatal(err)
	}
	_, _ = p.Drain(context.Background())
	fmt.Println(done.Load())
	// Output: 20
}

// A policy is a pure function of what the manager sees; this one has a worker for every ten messages that wait.
func ExamplePolicy() {
	p, err := pool.New(pool.Config[int]{
		Max: 50, Policy: perBacklog{10},
		Do: func(*pool.Worker[int], int) {},
	})
	if err != nil {
		log.Fatal(err)
	}
	_, _ = p.Drain(context.Background())
	d := perBacklog{10}.Step(pool.Observation{Workers: 3, Backlog: 120})
	fmt.Println(d.Target, d.Why())
	// Output: 12 work waits: 120 of it
}

type perBacklog struct{ each int }

func (p perBacklog) Step(o pool.Observation) pool.Decision {
	return pool.Decision{Target: max(1, o.Backlog/p.each), Reason: pool.ReasonGrow, Detail: fmt.Sprintf("%d of it", o.Backlog),
		Next: 50 * time.Millisecond}
}

// Each decision that changes the number of workers says what it saw and why.
func ExampleConfig_observe() {
	p, err := pool.New(pool.Config[int]{
		Min: 2, Max: 4, Policy: pool.Fixed(),
		Do:      func(*pool.Worker[int], int) {},
		Observe: func(d pool.Decision) { fmt.Printf("%d -> %d: %s\n", d.From, d.Target, d.Why()) },
	})
	if err != nil {
		log.Fatal(err)
	}
	for p.Stats().Live < 4 {
		time.Sleep(time.Millisecond)
	}
	_, _ = p.Drain(context.Background())
	// Output: 2 -> 4: at a limit: fixed
}
