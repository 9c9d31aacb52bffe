package sim

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/chance"
)

// A Result is what became of a run.
type Result struct {
	// Findings are what must not be; none: all is well.
	Findings []string
	// Told is all that happened, line by line, with the engine's log where that was asked for.
	Told []string
	// Messages that were stored; Runs of handlers; Again: how many messages were handled more often than once.
	Messages, Runs, Again int
	// Virtual time that the run took, and Real.
	Virtual, Real time.Duration
}

// A Watch looks from outside of the bubble whether its time goes on. The zero value is ready.
type Watch struct {
	// Logs lets the engine's log be part of Result.Told.
	Logs bool
	// now is the bubble's time.
	now atomic.Int64
	// at is the schedule under way.
	at atomic.Pointer[Schedule]
}

// Now is the time in the bubble of the run under way, in Unix nanoseconds: it stands still where a goroutine spins.
func (w *Watch) Now() int64 { return w.now.Load() }

// about is the findings, and with told all that happened.
func (r Result) about(told bool) string {
	const most = 6
	s := strings.Join(r.Findings[:min(most, len(r.Findings))], "\n\t")
	if more := len(r.Findings) - most; more > 0 {
		s += fmt.Sprintf("\n\tand %d more", more)
	}
	if told {
		s += "\n" + strings.Join(r.Told, "\n")
	}
	return s
}

// run is a schedule under way.
type run struct {
	testing.TB
	schedule Schedule
	kind     Kind
	world    World
	book     *book
	watch    *Watch
	logs     *logs

	processes  []*process // added to under ownersMu, for who looks at shares
	publishers []broker.Publisher
	running    []*entry // under book.mu
	ordered    bool     // an order holds over all processes
	floors     map[string][]int64
	nacks      map[int][]time.Time // of each message, when the broker heard of one
	gone       int                 // how many of World.Gone are in the book
	outputs    []broker.Message    // that are there at the end
	inLetters  map[int]int         // of each message, how many dead letters are there at the end
	rnd        *rand.Rand

	ownersMu sync.Mutex
	owners   map[string]*process   // of each partition: to whom it was assigned last
	had      map[string][]*process // of each topic: those that were assigned some of it
	stolenAt time.Time             // the last Steal
	madeAt   time.Time             // the last Make
	// renewedAt is the last Recreate.
	renewedAt time.Time
	sick      atomic.Int32 // how many Sick are under way

	silent silence // of the broker, to all
}

// Run carries a schedule out in a bubble of its own. w may be nil.
func Run(t *testing.T, s Schedule, w *Watch) (res Result) {
	t.Helper()
	kind, err := KindOf(s.World)
	if err != nil {
		t.Fatal(err)
	}
	if w == nil {
		w = &Watch{}
	}
	w.at.Store(&s)
	defer chance.Seed(s.Seed)()
	if s.Settings.Hooks {
		defer quietly()()
	}
	if kind.Prepare != nil {
		kind.Prepare()
	}
	r := &run{schedule: s, kind: kind, watch: w, rnd: rand.New(rand.NewPCG(s.Seed, 0)), owners: map[string]*process{},
		had: map[string][]*process{}, nacks: map[int][]time.Time{}, inLetters: map[int]int{}}
	began := time.Now()
	defer func() {
		if p := recover(); p != nil {
			res.Findings = append(res.Findings, leftBehind(p))
			if r.book != nil {
				res.Told = r.book.told
			}
		}
		res.Real = time.Since(began)
	}()
	synctest.Test(t, func(t *testing.T) {
		r.TB = t
		res = r.carryOut()
	})
	return res
}

// leftBehind says what synctest means when it gives a bubble up.
func leftBehind(p any) string {
	what := fmt.Sprint(p)
	if strings.Contains(what, "blocked goroutines remain") {
		return "goroutines are left behind that wait for ever: " + what
	}
	return fmt.Sprintf("panic: %v\n%s", what, debug.Stack())
}

// carryOut is the whole run, inside the bubble.
func (r *run) carryOut() (res Result) {
	r.book = newBook()
	began := time.Now()
	end := r.tick()
	if r.watch.Logs {
		r.logs = &logs{book: r.book}
	}
	if err := r.live(); err != nil {
		r.book.find("the schedule cannot be carried out: %v", err)
	}
	end()
	r.judge()
	res.Findings, res.Told = r.book.findings, r.book.told
	res.Messages, res.Runs = len(r.book.stored), len(r.book.entries)
	for _, n := range r.book.done {
		res.Again += n - 1
	}
	res.Virtual = time.Since(began)
	return res
}

// tick lets the watch see that time goes on.
func (r *run) tick() (end func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for t := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case now := <-t.C:
				r.watch.now.Store(now.UnixNano())
				synctest.Wait()
				r.judgeShares()
			case <-over:
				t.Stop()
				return
			}
		}
	}()
	return func() { close(over); <-ended }
}

// live starts the processes, takes the steps, calms down, and ends everything.
func (r *run) live() error {
	if s := r.schedule.Settings; s.Emits > 0 && !s.Bridge && r.kind.EmitsNot != "" {
		return fmt.Errorf("world %s has no outputs: %s", r.kind.Name, r.kind.EmitsNot)
	}
	r.world = r.kind.New(r, r.schedule)
	r.ordered = !r.kind.Shared
	defer func() {
		r.floors = r.world.Floors()
		r.world.Close()
		time.Sleep(time.Minute) // what is bounded by a timeout ends by then
	}()
	for range max(1, r.schedule.Processes) {
		if err := r.start(); err != nil {
			return err
		}
	}
	err := r.steps()
	if err == nil {
		err = r.calm()
	}
	r.end()
	return errors.Join(err, r.readEnd())
}

// A deed is done at an instant.
type deed struct {
	at time.Time
	do func() error
}

// steps does all that the schedule says, and ends what lasts in its time.
func (r *run) steps() error {
	var due []deed // ends of what lasts, by time
	until := func(at time.Time) error {
		for len(due) > 0 && !due[0].at.After(at) {
			d := due[0]
			due = due[1:]
			time.Sleep(time.Until(d.at))
			if err := d.do(); err != nil {
				return err
			}
		}
		time.Sleep(time.Until(at))
		return nil
	}
	at := time.Now()
	for _, step := range r.schedule.Steps {
		at = at.Add(time.Duration(step.After))
		if err := until(at); err != nil {
			return err
		}
		if err := r.produce(step.Produce); err != nil {
			return err
		}
		if step.Fault.What == "" {
			continue
		}
		undo, err := r.fault(step.Fault)
		if err != nil {
			return err
		}
		if undo != nil {
			lasts := step.Fault.For
			if whats[step.Fault.What].armed {
				lasts = r.schedule.Settings.Lease
			}
			due = append(due, deed{time.Now().Add(time.Duration(lasts)), func() error { undo(); return nil }})
			slices.SortStableFunc(due, func(a, b deed) int { return a.at.Compare(b.at) })
		}
	}
	if len(due) > 0 {
		return until(due[len(due)-1].at)
	}
	return nil
}

// produce stores n messages.
func (r *run) produce(n int) error {
	s := r.schedule.Settings
	for range n {
		topic, key := r.schedule.Inputs()[r.rnd.IntN(s.Topics)], fmt.Sprintf("k%d", r.rnd.IntN(max(1, s.Keys)))
		at, named := partitionOf(key, s.Partitions), []byte(key)
		if r.rnd.IntN(100) < s.Keyless {
			at, named = r.rnd.IntN(max(1, s.Partitions)), nil
		}
		number := r.book.store(topic)
		offset, err := r.world.Produce(topic, at, named, r.schedule.valueOf(number))
		if err != nil {
			return fmt.Errorf("storing m%d: %w", number, err)
		}
		r.book.stored[number].offset = offset
	}
	return nil
}

// partitionOf is where a key goes, the same in each run and world.
func partitionOf(key string, partitions int) int {
	sum := 0
	for _, c := range key {
		sum = sum*31 + int(c)
	}
	return sum % max(1, partitions)
}

// calmFor is how long everything may take to become settled when all is mended.
const calmFor = 10 * time.Minute

// calm mends everything, lets one more process join, unless the schedule is for those that are left, and waits until all is
// settled.
func (r *run) calm() error {
	r.book.note("calm")
	if !r.schedule.Alone || !slices.ContainsFunc(r.processes, (*process).runs) {
		if err := r.start(); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(calmFor)
	wait := 50 * time.Millisecond
	for {
		left, err := r.unfinished()
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			r.book.find("after %v of calm there is something left: %s", calmFor, strings.Join(left, "; "))
			return nil
		}
		time.Sleep(wait)
		wait = min(wait*5/4, time.Second)
	}
}

// end stops all processes and waits for them.
func (r *run) end() {
	for _, p := range r.processes {
		p.finish("the end")
	}
	for _, p := range r.processes {
		select {
		case <-p.ended:
		case <-time.After(endsWithin + time.Duration(r.schedule.Settings.Drain)):
			r.book.find("%s has not ended %v after its stop", p.name, endsWithin)
		}
	}
	r.judgeGoodbyes()
	time.Sleep(2 * time.Duration(r.schedule.Settings.Lease)) // a deaf handler returns by then
	for _, p := range r.processes {
		p.has.Close()
	}
	for _, pub := range r.publishers {
		if err := pub.Close(r.Context()); err != nil {
			r.book.find("closing a publisher: %v", err)
		}
	}
}

// endsWithin is how long a process may take beyond its drain.
const endsWithin = time.Minute

// logs lets the engine write its log into the book.
type logs struct {
	book *book
	mu   sync.Mutex
}

// Write is zerolog's.
func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book.note("log %s", bytes.TrimSpace(line))
	return len(line), nil
}
