package pool

import (
	"errors"
	"fmt"
	"log"
	"math"
	"runtime"
	"time"
)

// Config says what a pool does and how large it may become. The zero value of each field but Do is useful.
type Config[T any] struct {
	// Do handles one T, on one of the pool's goroutines. It may panic (see Panic) or call runtime.Goexit: the slot survives. It must
	// never call Submit or SubmitAll of its own pool, for workers that wait for room which only workers make are a deadlock: Requeue
	// is theirs. Required.
	Do func(*Worker[T], T)

	// Min is the number of workers that are always there. Raise it where the first messages after a silence must not wait for a
	// goroutine to start. Defaults to 1.
	Min int
	// Max is the most workers at a time. It is a safety limit, not a tuning knob: ReportStatus uses as many as bring something. A
	// worker costs a goroutine (a few KB) and what Do holds. Defaults to 256, which covers 50,000 calls of 5 ms a second, or to Min
	// if that is more.
	Max int
	// Policy decides how many workers there are. One value serves one pool. Defaults to ReportStatus().
	Policy Policy
	// IdleTimeout is how long a worker waits for work before it reports so and asks to retire. Longer keeps more workers through
	// gaps in the load. Defaults to 1 s.
	IdleTimeout time.Duration
	// Gauge tells the manager of memory and CPU in use, that it may stay within them: see RuntimeGauge. Called by the manager at
	// each of its steps. Defaults to nil: neither is minded.
	Gauge func() Pressure

	// Waiting says how many messages wait where the T's come from and were not submitted yet: a broker's lag; negative where it is
	// not known. A backlog of slow work then brings workers before it fills the queue. Called by the manager at each of its steps,
	// so it must not block. Defaults to nil: nothing does.
	Waiting func() int64

	// Queue is the most T's that wait in each class before Submit blocks. Requeue ignores it. Too few, and short handlers run the
	// queue dry between two looks of a submitter, which also makes Weights meaningless: see QueueTime. Defaults to 1024.
	Queue int
	// QueueTime is the same bound in time: a class holds about as many T's as the workers finish within it, at least two for each
	// worker that Max allows and for each core 64, and at most Queue. Lower it where what waits should wait elsewhere.
	// Defaults to 0: Queue alone counts.
	QueueTime time.Duration
	// Weights has an entry for each class: the T's that it may have in a row while others wait too. Defaults to one class.
	Weights []int
	// Strict takes from the classes by rank instead: from a later one only while all before it are empty, except that one that waits
	// is never passed over more than about a hundred times in a row. Of Weights only the number counts then. Defaults to false.
	Strict bool
	// Count says how many messages a T holds, when it is taken in, when its handling starts, and in Sweep. It counts messages in
	// arrivals, backlog and handler time, and it must be safe to call from any goroutine. Defaults to 1 for each T.
	Count func(T) int

	// Scan is the least time between two looks at the T's in hand, for Split and Held; without either there are none. A T is
	// first looked at when it has been in hand for one to two of it. Defaults to 10 ms.
	Scan time.Duration
	// ScanOne is how long a T of one message (Count) is in hand before it is first looked at: Split could take nothing from it, and
	// where few come each look wakes a processor for nothing. Raise it to what Held need not know sooner. Defaults to Scan, which is
	// the least.
	ScanOne time.Duration
	// Split takes away the unstarted rest of a T that a worker has had for two scans, that others may do it. The rest goes to the
	// front of its class. Called with no lock held, while Do may be running. Defaults to nil: a T stays whole.
	Split func(T) (rest T, ok bool)
	// Held is told at each scan of each T in hand for longer than one scan (ScanOne), and for how long, unless it called
	// Worker.Rest. With true the worker is abandoned: it counts no more, another takes its slot, and when Do returns at last its
	// goroutine ends. Called with no lock held. Defaults to nil.
	Held func(w *Worker[T], t T, d time.Duration) (abandon bool)
	// MaxStuck is the most abandoned workers at a time; at that number Held's true is ignored. Defaults to Max; negative: none.
	MaxStuck int

	// Exit is called when a slot's goroutine ends: retired, closed, abandoned and returned, or by Goexit in Do. It runs on that
	// goroutine, as the last that touches the Worker. Defaults to nil.
	Exit func(*Worker[T])
	// Panic is told of a panic in Do, with its value and the stack, on the worker's goroutine. The T counts as handled, the worker
	// goes on. Defaults to writing both through package log, as net/http does; re-panic in it to end the process.
	Panic func(value any, stack []byte)
	// Observe is told of each decision that changes the number of workers. Called by the manager with no lock held; the manager
	// waits for it. Defaults to nil.
	Observe func(Decision)
}

// maxWorkers is the default of Config.Max.
const maxWorkers = 256

// unbounded is the largest Config.Queue that sums are made with: math.MaxInt and an idle worker would be less than nothing.
const unbounded = math.MaxInt / 4

// withDefaults returns c with every unset field filled.
func (c Config[T]) withDefaults() Config[T] {
	if c.Min == 0 {
		c.Min = 1
	}
	if c.Max == 0 {
		c.Max = max(maxWorkers, c.Min)
	}
	if c.Policy == nil {
		c.Policy = ReportStatus()
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = time.Second
	}
	if c.Queue == 0 {
		c.Queue = 1024
	}
	c.Queue = min(c.Queue, unbounded)
	if len(c.Weights) == 0 {
		c.Weights = []int{1}
	}
	if c.Scan == 0 {
		c.Scan = 10 * time.Millisecond
	}
	c.Scan = min(c.Scan, never/4) // sums are made with it
	c.ScanOne = min(max(c.ScanOne, c.Scan), never/4)
	if c.MaxStuck == 0 {
		c.MaxStuck = c.Max
	}
	if c.Panic == nil {
		c.Panic = logPanic
	}
	return c
}

func logPanic(value any, stack []byte) { log.Printf("pool: panic in Do: %v\n%s", value, stack) }

// validate reports everything that is wrong with c, each finding with its field's name.
func (c Config[T]) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("pool: "+format, args...)) }
	if c.Do == nil {
		bad("Config.Do: is required")
	}
	if err := checkLimits(c.Min, c.Max); err != nil {
		errs = append(errs, err)
	}
	if c.Queue < 1 {
		bad("Config.Queue: is %d, must be at least 1", c.Queue)
	}
	for i, n := range c.Weights {
		if n < 1 {
			bad("Config.Weights[%d]: is %d, must be at least 1", i, n)
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"IdleTimeout", c.IdleTimeout}, {"QueueTime", c.QueueTime}, {"Scan", c.Scan}} {
		if f.d < 0 {
			bad("Config.%s: is %v, must not be negative", f.name, f.d)
		}
	}
	if v, ok := c.Policy.(interface{ validate() error }); ok {
		if err := v.validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func checkLimits(least, most int) error {
	switch {
	case least < 1:
		return fmt.Errorf("pool: Config.Min: is %d, must be at least 1", least)
	case most < least:
		return fmt.Errorf("pool: Config.Max: is %d, must be at least Min, %d", most, least)
	}
	return nil
}

// scans says whether somebody looks at the T's in hand.
func (c *Config[T]) scans() bool { return c.Split != nil || c.Held != nil }

// leastBound is the fewest T's that QueueTime leaves a class: see there.
func (c *Config[T]) leastBound(most int) int {
	return min(c.Queue, max(2*min(most, c.Queue), 64*runtime.GOMAXPROCS(0))) // most may be math.MaxInt
}

// hasClass is an error where there is no such class.
func (c *Config[T]) hasClass(class int) error {
	if class < 0 || class >= len(c.Weights) {
		return fmt.Errorf("pool: class %d: there are %d", class, len(c.Weights))
	}
	return nil
}

func (c *Config[T]) messages(t T) int {
	if c.Count == nil {
		return 1
	}
	return c.Count(t)
}

// countAll appends to each the messages of every one of ts. It runs before the lock is taken: Count is the caller's.
func (c *Config[T]) countAll(each []int, ts []T) []int {
	for _, t := range ts {
		each = append(each, c.messages(t))
	}
	return each
}
