package consumer

import (
	"log"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/rs/zerolog"
)

// A teller tells the observers what happened, and has the counters. What is counted is counted before its message is settled: who
// sees a message gone sees it counted.
type teller struct {
	observers []Observer
	counting  []Observer // those of them that are told of Handled and Operated: not the log
	clock     clock

	// What workers write for each work stands together: on lines of their own, each would go from processor to processor by itself.
	_        line
	pace     pace
	progress atomic.Int64 // when a handler last returned nil, or Skip, by clock; 0: never
	count    counters
	ages     ages
	_        line
}

// line keeps what stands before it from the cache line of what stands after it: what is written for each hand-off, by
// dispatchers or workers, shares none with what they only read.
type line [64]byte

// counters count since Run began.
type counters struct {
	handled, skipped, failed, retried, deferred, limited, retryPublished, deadLettered, givenBack, lost, gaps,
	unordered atomic.Int64
}

func newTeller(cfg *Config) *teller {
	t := &teller{counting: slices.Clone(cfg.Observers), observers: slices.Clone(cfg.Observers), clock: newClock()}
	if cfg.Logger.GetLevel() != zerolog.Disabled {
		t.observers = append(t.observers, LogEvents(cfg.Logger.With().Str("consumer", cfg.Name).Logger()))
	}
	return t
}

// tell passes e to every observer.
func (t *teller) tell(e Event) {
	for _, o := range t.observers {
		o.call(e)
	}
}

// laneFull tells that a lane of k has reached its limit.
func (t *teller) laneFull(k *claim, number uint64) {
	_, waiting, _ := k.lanes.size()
	t.tell(LaneFull{Topic: k.Topic, Partition: k.Partition, Waiting: waiting, First: k.lanes.first(number)})
}

// call tells o of e. It is called in the midst of what is done about a message, and that goes on whatever o does: a worker that
// is unwound there would leave a message that was decided about, and is neither acked nor parked, in nobody's hands.
func (o Observer) call(e Event) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			log.Printf("consumer: panic in an observer of %s: %v\n%s", e.Name(), v, debug.Stack())
		} else if !returned {
			exited("an observer of " + e.Name())
		}
	}()
	o(e)
	returned = true
}

// exited writes that a callback has ended the goroutine that called it, which nothing can hold back: runtime.Goexit, or FailNow
// or Fatal of a test. What that goroutine had in hand nobody has now, and the end of the consumer waits for it in vain. Without a
// word that would be a test that hangs, and nobody would know why.
func exited(what string) {
	log.Printf("consumer: runtime.Goexit (or FailNow of a test) in %s: what its goroutine had in hand stays there until the "+
		"consumer has ended\n%s", what, debug.Stack())
}

// survive calls f, which is a callback that is no part of a handler's call. Where it panics that is told, and who called goes on:
// a worker that is unwound there would leave a message in nobody's hands, and any other goroutine would end the process.
func (t *teller) survive(in string, f func()) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			t.tell(Panicked{In: in, Err: &PanicError{Value: v, Stack: debug.Stack()}})
		} else if !returned {
			exited(in)
		}
	}()
	f()
	returned = true
}

// failing is survive for a callback that says with an error that it did not do it: a panic is one.
func failing(f func() error) error {
	if err := panicking(f); err != nil {
		return readable(err)
	}
	return nil
}

// panicking is the error of f, or its panic.
func panicking(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// tellHandled is tell for what happens for each hand-off.
func (t *teller) tellHandled(n int, took time.Duration) {
	if len(t.counting) == 0 {
		return
	}
	e := Event(Handled{N: n, Took: took})
	for _, o := range t.counting {
		o.call(e)
	}
}

// operated is what a source is to tell its requests to; nil: nobody wants to know.
func (t *teller) operated(retries bool) func(broker.Operation) {
	if len(t.counting) == 0 {
		return nil
	}
	return func(op broker.Operation) {
		e := Event(Operated{Operation: op, Retries: retries})
		for _, o := range t.counting {
			o.call(e)
		}
	}
}

// handled counts messages whose handler returned nil, and that are about to be acked.
func (t *teller) handled(ms []broker.Message) {
	t.count.handled.Add(int64(len(ms)))
	if len(t.counting) > 0 {
		t.ages.add(ms, time.Now().UnixNano())
	}
}
