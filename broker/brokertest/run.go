package brokertest

import (
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A testCase is one case of the suite. Its function's comment says what it proves.
type testCase struct {
	name  string
	setup Setup
	run   func(w *world)
	// why says for which harness it does not apply; empty: it does.
	why func(h *Harness) string
	// alone: no other case may run beside it in this process.
	alone bool
}

// Run runs every case against the adapter, each as a subtest, side by side where [Harness.SideBySide] is set. A case that cannot
// be run is skipped, with its name and the reason, and so it says in the summary at the end (go test -v shows both).
func Run(t *testing.T, h Harness) {
	h = h.withDefaults()
	if err := h.validate(); err != nil {
		t.Fatal(err)
	}
	var sum summary
	t.Cleanup(func() { t.Helper(); t.Log(sum.text()) }) // cases that run side by side begin when Run has returned
	for _, c := range cases() {
		if len(h.Only) > 0 && !slices.Contains(h.Only, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if h.SideBySide && !c.alone {
				t.Parallel()
			}
			h, why := h, ""
			h.skipped = func(reason string) { why = reason }
			if h.Bubble {
				if left := c.inBubble(t, func(t *testing.T) { c.do(t, &h) }); left != "" {
					t.Error(left)
				}
			} else {
				c.doUnstarved(t, &h)
			}
			if sum.add(c.name, why); why != "" {
				t.Skip("SKIP: " + why) // the bubble's own T has no say in the outcome
			}
		})
	}
}

// A summary says what ran, and what was skipped for which reason.
type summary struct {
	mu    sync.Mutex
	ran   int
	skips []string
}

func (s *summary) add(name, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran++
	if why != "" {
		s.skips = append(s.skips, "SKIP "+name+": "+why)
	}
}

func (s *summary) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.skips)
	return fmt.Sprintf("%d cases ran, %d of them were skipped:\n%s", s.ran, len(s.skips), strings.Join(s.skips, "\n"))
}

// Cases are the names of all cases, in their order.
func Cases() []string {
	var names []string
	for _, c := range cases() {
		names = append(names, c.name)
	}
	return names
}

// Failures runs cases as Run does, all or the named ones, but reports what failed instead of failing t: by case, what it said. An
// adapter's test can thus prove that the suite sees a deliberate mistake.
func Failures(t *testing.T, h Harness, names ...string) map[string][]string {
	h = h.withDefaults()
	if err := h.validate(); err != nil {
		t.Fatal(err)
	}
	failed := make(map[string][]string)
	for _, c := range cases() {
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		r := &recorder{TB: t, name: t.Name() + "/" + c.name}
		if h.Bubble {
			left := c.inBubble(t, func(t *testing.T) { r.TB = t; r.do(func() { c.do(r, &h) }) })
			if r.TB = t; left != "" {
				r.Error(left)
			}
		} else {
			r.do(func() { c.do(r, &h) })
		}
		if didFail, said := r.told(); didFail {
			failed[c.name] = said
		}
	}
	return failed
}

// tries is how often a case is run at most, whose process or broker got no processor for too long; from triesBeside on with no
// other beside it.
const tries, triesBeside = 5, 2

// doUnstarved runs the case in real time. A failure counts only when the process was let run, and the broker, too: see pulse.
// Who has others beside it, and was not, waits less for what may never come.
func (c *testCase) doUnstarved(t *testing.T, h *Harness) {
	t.Helper()
	for try := 1; ; try++ {
		r := &recorder{TB: t, name: t.Name()}
		alone, now := c.alone || try > triesBeside, *h
		leave := enter(alone)
		p := startPulse(h.Lease, h.Probe)
		now.starved = func() bool { return !alone && p.starved() }
		r.do(func() { c.do(r, &now) })
		p.stop()
		leave()
		failed, said := r.told()
		if !failed {
			return
		}
		text := strings.Join(said, "\n")
		if !p.starved() || try == tries {
			t.Errorf("%s\n(%s)", text, p.text())
			return
		}
		t.Logf("VOID: %s, of a lease of %v; once more. It had said: %s", p.text(), h.Lease, text)
	}
}

// patience is how long to wait for what has to happen. A process that was starved may have lost what it waits for, and its
// failure would not count.
func (h *Harness) patience() time.Duration {
	if h.starved != nil && h.starved() {
		return h.Patience / 4
	}
	return h.Patience
}

// stage is where cases in real time run: side by side, those of several calls of Run too, or one alone.
var stage sync.RWMutex

// enter waits until a case may run.
func enter(alone bool) (leave func()) {
	if alone {
		stage.Lock()
		return stage.Unlock
	}
	stage.RLock()
	return stage.RUnlock
}

func (c *testCase) do(t testing.TB, h *Harness) {
	t.Helper()
	if c.why != nil {
		if reason := c.why(h); reason != "" {
			h.skip(t, reason)
		}
	}
	w := newWorld(t, h, c)
	defer w.closeAll() // also of a case that ended early: before the cleanups, for Join's take away what Close needs
	c.run(w)
	w.finish()
}

// skip ends the case and says why.
func (h *Harness) skip(t testing.TB, reason string) {
	t.Helper()
	if h.skipped != nil {
		h.skipped(reason)
	}
	t.Skip("SKIP: " + reason)
}

func (h *Harness) validate() error {
	missing := h.unknown()
	if h.New == nil {
		missing = append(missing, "New is nil")
	}
	if h.Lease <= 0 {
		missing = append(missing, "Lease is not set")
	}
	for _, name := range h.Only {
		if !slices.Contains(Cases(), name) {
			missing = append(missing, fmt.Sprintf("Only names %s, which is no case", name))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("brokertest harness: %s", strings.Join(missing, "; "))
	}
	return nil
}

// A recorder stands in for a test's T and keeps what was said.
type recorder struct {
	testing.TB // for what is not overridden
	name       string

	mu       sync.Mutex
	failed   bool
	said     []string
	cleanups []func()
}

// do runs f in a goroutine of its own, for FailNow ends it, and then the cleanups.
func (r *recorder) do(f func()) {
	r.inGoroutine(f)
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		last := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		r.inGoroutine(last)
	}
}

func (r *recorder) inGoroutine(f func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer r.panicked()
		f()
	}()
	<-over
}

// panicked makes of a panic a failure of its case, so that it is judged as one: see doUnstarved.
func (r *recorder) panicked() {
	if p := recover(); p != nil {
		r.say(fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
	}
}

func (r *recorder) say(text string) {
	if at := position(); at != "" {
		text = at + ": " + text
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	r.said = append(r.said, text)
}

// told is whether the case failed, and what it said. A case that ended at a failure may have goroutines that go on to say more.
func (r *recorder) told() (failed bool, said []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed, slices.Clone(r.said)
}

// position says where in the suite, and called from where in it, something failed.
func position() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var at []string
	for {
		f, more := frames.Next()
		file := path.Base(f.File)
		if strings.Contains(f.Function, "/brokertest.") && file != "run.go" {
			at = append(at, fmt.Sprintf("%s:%d", file, f.Line))
		}
		if !more {
			return strings.Join(at, " from ")
		}
	}
}

func (r *recorder) Helper()                           {}
func (r *recorder) Name() string                      { return r.name }
func (r *recorder) Log(args ...any)                   {}
func (r *recorder) Logf(format string, args ...any)   {}
func (r *recorder) Error(args ...any)                 { r.say(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.say(fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.say("failed") }
func (r *recorder) FailNow()                          { r.say("failed"); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) Skip(...any)                       { runtime.Goexit() }
func (r *recorder) Skipf(string, ...any)              { runtime.Goexit() }
func (r *recorder) SkipNow()                          { runtime.Goexit() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

var _ testing.TB = (*recorder)(nil)

// poll is how often a condition is looked at.
const poll = 2 * time.Millisecond

// needsRedelivery is the reason against a case that has no sense where nothing comes again.
func needsRedelivery(h *Harness) string {
	if h.Traits.AtMostOnce {
		return "Traits.AtMostOnce: nothing comes again"
	}
	return ""
}
