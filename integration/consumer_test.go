//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/goleak"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/ledger"
)

// consumerConfig is what a consumer process is told.
type consumerConfig struct {
	Discipline discipline
	Broker     string // the name of its kind
	URL        string // or addresses with commas
	Topic      string // of Kafka
	Group      string // or durable
	Ledger     string
	Workers    int
	// Lease is for how long the broker waits for a consumer that says nothing: AckWait, or the session timeout.
	Lease time.Duration
	Drain time.Duration
	// Open bounds the first contact with the broker; 0: for ever.
	Open time.Duration
	// Busy is how long a handler takes. 0: 1 to 6 ms.
	Busy time.Duration
	// SlowOneIn: the handlers of one number in so many take 400 ms, however often they run. 0: none.
	SlowOneIn int
	// Seed chooses which ones those are.
	Seed uint64
	// Gate is a file: handlers begin their work when it is there.
	Gate string
	// Loud says "begun" at the begin of each handler, and "cancelled" with the reason when its context ends.
	Loud bool
	// Hang: the handler waits until its context ends, and returns that error.
	Hang bool
	// SlowFirst is how long the handler of number 0 takes.
	SlowFirst time.Duration
	// FailRuns: some numbers fail so many times in one process before they succeed: every tenth; or those that Seed chooses, one in
	// FailOneIn.
	FailRuns, FailOneIn int
	// Order is what the consumer keeps; empty: none.
	Order consumer.Order
	// Clock is the socket of the clock that stamps handler runs. Empty: none does.
	Clock string
	// Letters is where dead letters go, after two failed runs, by the server at LettersURL. Empty: none.
	Letters, LettersURL string
	// StayAt lets the publisher of dead letters never return again from the first one that is confirmed: it says "stays".
	StayAt bool
	// LetterPause is how long the publisher of dead letters waits before each publish, and between its confirm and its return.
	// With a publish of several letters it says "together".
	LetterPause time.Duration
	// Ping is how often the connection is tried; two unanswered drop it.
	Ping time.Duration
	// Heartbeat is how often the server must say that it still knows our pull, and a member of a group that it lives, or more often.
	Heartbeat time.Duration
	// Recreate goes on after the stream or the durable was made anew.
	Recreate bool
	// OutOfRange is what to do where the log does not have our position.
	OutOfRange string
	// Flap lets the pool be as small and as large as it may be, in turns of so long.
	Flap time.Duration
	// Churn lets the consumer run for so long, then rest for so long, again and again.
	Churn time.Duration
}

// A discipline is a way to consume.
type discipline string

const (
	// longshoreConsumer is the product.
	longshoreConsumer discipline = "longshore"
	// wholeProgram is the product as longshore run: program_test.go.
	wholeProgram discipline = "program"
	// commitEach is kafka-go's Reader with a pool of goroutines, committing each message after its handler. It loses what is
	// unfinished below a commit when it dies.
	commitEach discipline = "commit-each"
	// ackAfter is nats.go with a pool of goroutines, acking after the handler: correct, by hand.
	ackAfter discipline = "ack-after"
	// ackBefore acks on receipt. It loses what it holds when it dies; the harness has to see that.
	ackBefore discipline = "ack-before"
)

// consumerMain is the consumer process. It says "up" once it is connected and "handled" after its first message. The first
// SIGTERM drains, the second ends at once. The product must leave no goroutine behind; if it does, the exit code is 3.
func consumerMain(arg string) int {
	var c consumerConfig
	if err := json.Unmarshal([]byte(arg), &c); err != nil {
		fmt.Fprintln(os.Stderr, "consumer config:", err)
		return 2
	}
	w, err := newWork(c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-signals
		say("stopping")
		cancel()
		<-signals
		os.Exit(143)
	}()
	before := goleak.IgnoreCurrent()
	run := map[discipline]func(context.Context, consumerConfig, *work) error{
		longshoreConsumer: runLongshore,
		ackAfter:          runByHand,
		ackBefore:         runByHand,
		commitEach:        runCommitEach,
	}[c.Discipline]
	if c.Churn > 0 {
		run = churn(run)
	}
	if err := run(ctx, c, w); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		return 1
	}
	if c.Discipline != longshoreConsumer {
		return 0
	}
	if err := goleak.Find(before); err != nil {
		fmt.Fprintln(os.Stderr, "left behind:", err)
		return 3
	}
	return 0
}

// churn joins and leaves.
func churn(run func(context.Context, consumerConfig, *work) error) func(context.Context, consumerConfig, *work) error {
	return func(ctx context.Context, c consumerConfig, w *work) error {
		for ctx.Err() == nil {
			stay, cancel := context.WithTimeout(ctx, c.Churn)
			err := run(stay, c, w)
			cancel()
			if err != nil {
				return err
			}
			say("left")
			select {
			case <-time.After(c.Churn):
			case <-ctx.Done():
			}
		}
		return nil
	}
}

// say prints one line in one write.
func say(words ...any) { fmt.Println(words...) }

// work is the handler: it takes its time, and as its last act writes to the ledger.
type work struct {
	c      consumerConfig
	l      *ledger.Ledger
	clock  *ledger.Reporter // nil: runs are not stamped
	first  sync.Once
	mu     sync.Mutex
	failed map[int64]int // runs of numbers that are to fail
}

func newWork(c consumerConfig) (*work, error) {
	l, err := ledger.Open(c.Ledger)
	w := &work{c: c, l: l, failed: map[int64]int{}}
	if err == nil && c.Clock != "" {
		w.clock, err = ledger.NewReporter(c.Clock)
	}
	return w, err
}

// do handles a message; where there is a clock, from the first stamp to the last.
func (w *work) do(ctx context.Context, seq int64, body []byte) error {
	id, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
	if err != nil {
		return fmt.Errorf("a message without a number: %w", err)
	}
	if w.clock == nil {
		return w.perform(ctx, id, seq)
	}
	run, err := w.clock.Begin(id, seq)
	if err != nil {
		return fmt.Errorf("stamping a begin: %w", err)
	}
	err = w.perform(ctx, id, seq)
	how := ledger.Done
	switch {
	case err != nil && ctx.Err() != nil:
		how = ledger.Cancelled
	case err != nil:
		how = ledger.Failed
	}
	if err := w.clock.End(run, how); err != nil {
		return fmt.Errorf("stamping an end: %w", err)
	}
	return err
}

func (w *work) perform(ctx context.Context, id, seq int64) error {
	if w.c.Loud {
		say("begun")
	}
	if err := w.spend(ctx, id); err != nil {
		if w.c.Loud {
			say("cancelled", err)
		}
		return err
	}
	if err := w.l.Write(id, seq); err != nil {
		return err
	}
	w.first.Do(func() { say("handled") })
	return nil
}

// spend is the time that a handler takes. It returns why its context ended, where that came first, or why it fails.
func (w *work) spend(ctx context.Context, id int64) error {
	if w.c.Hang {
		w.first.Do(func() { say("hanging") })
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for w.c.Gate != "" && ctx.Err() == nil {
		if _, err := os.Stat(w.c.Gate); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if w.mustFail(id) {
		return fmt.Errorf("number %d is to fail", id)
	}
	select {
	case <-time.After(w.takes(id)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *work) mustFail(id int64) bool {
	switch {
	case w.c.FailRuns == 0:
		return false
	case w.c.FailOneIn > 0:
		if rand.New(rand.NewPCG(w.c.Seed+1, uint64(id))).IntN(w.c.FailOneIn) != 0 {
			return false
		}
	case id%10 != 0:
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed[id]++
	return w.failed[id] <= w.c.FailRuns
}

func (w *work) takes(id int64) time.Duration {
	r := rand.New(rand.NewPCG(w.c.Seed, uint64(id)))
	switch {
	case id == 0 && w.c.SlowFirst > 0:
		return w.c.SlowFirst
	case w.c.SlowOneIn > 0 && r.IntN(w.c.SlowOneIn) == 0:
		return slowHandler
	case w.c.Busy > 0:
		return w.c.Busy
	default:
		return time.Millisecond + time.Duration(r.Int64N(int64(5*time.Millisecond)))
	}
}

const slowHandler = 400 * time.Millisecond
