package brokertest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// faults are what the case does to the broker and to processes: told when it fails, and undone at its end.
type faults struct {
	began time.Time

	mu     sync.Mutex
	done   []string
	ending bool // what is mended at the end is of no interest
	isDown bool
	isSlow bool
}

// note tells of one.
func (f *faults) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ending {
		f.done = append(f.done, stampedLine(f.began, format, args...))
	}
}

// text is what a failure shows of them.
func (f *faults) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.done) == 0 {
		return ""
	}
	return "\nthe case: " + strings.Join(f.done, "; ")
}

// mend undoes what is done to the broker.
func (f *faults) mend(t testing.TB, s *System) {
	f.mu.Lock()
	f.ending = true
	down, slow := f.isDown, f.isSlow
	f.mu.Unlock()
	if down {
		s.Up(t)
	}
	if slow {
		s.SlowSettles(t, 0)
	}
}

// turn notes whether the broker is down, and says whether it was not so already.
func (f *faults) turn(down bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	turned := f.isDown != down
	f.isDown = down
	return turned
}

// system lets each function that makes trouble note it. Up does nothing where the broker is up.
func (f *faults) system(s *System) *System {
	noted := *s
	noted.Down = noteCall(f, s.Down, "the broker goes down", func() bool { f.turn(true); return true })
	noted.Up = noteCall(f, s.Up, "the broker is up", func() bool { return f.turn(false) })
	noted.ForgetSettles = noteCall(f, s.ForgetSettles, "the broker forgets settles", func() bool { return true })
	claimed := func(what string, take func(testing.TB, *broker.Claim)) func(testing.TB, *broker.Claim) {
		return noteOne(f, take, func(c *broker.Claim) string { return fmt.Sprintf("%s of %s/%d", what, c.Topic, c.Partition) })
	}
	noted.Revoke, noted.Steal, noted.Bounce = claimed("Revoke", s.Revoke), claimed("Steal", s.Steal), claimed("Bounce", s.Bounce)
	noted.Redeliver = noteOne(f, s.Redeliver, func(m *broker.Message) string { return "Redeliver of " + id(m) })
	noted.FailSettles = noteOne(f, s.FailSettles, func(n int) string { return fmt.Sprintf("the next %d settles fail", n) })
	noted.SlowSettles = noteOne(f, s.SlowSettles, f.slowed)
	noted.Recreate = noteOne(f, s.Recreate, func(topic string) string { return "Recreate of " + topic })
	noted.Undecodable = noteOne(f, s.Undecodable, func(topic string) string { return "something undecodable in " + topic })
	if s.Trim != nil {
		noted.Trim = func(t testing.TB, topic string, n int) {
			f.note("Trim of %d in %s", n, topic)
			s.Trim(t, topic, n)
		}
	}
	return &noted
}

// slowed notes by how much exchanges take longer.
func (f *faults) slowed(d time.Duration) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isSlow = d > 0
	return fmt.Sprintf("exchanges take %v longer", d)
}

// noteCall notes a call of do, where begin says that it is to be called.
func noteCall(f *faults, do func(testing.TB), what string, begin func() bool) func(testing.TB) {
	if do == nil {
		return nil
	}
	return func(t testing.TB) {
		if begin() {
			f.note("%s", what)
			do(t)
		}
	}
}

func noteOne[T any](f *faults, do func(testing.TB, T), what func(T) string) func(testing.TB, T) {
	if do == nil {
		return nil
	}
	return func(t testing.TB, x T) {
		f.note("%s", what(x))
		do(t, x)
	}
}

// process does the same for a process. Heal does nothing where that is not cut off: the connection would be lost, and with it
// perhaps what was just given back, of which Close has to tell.
func (f *faults) process(name string, p *Process) *Process {
	noted := *p
	call := func(do func(), what string) func() {
		if do == nil {
			return nil
		}
		return func() {
			f.note("%s %s", name, what)
			do()
		}
	}
	noted.Kill, noted.Freeze, noted.Thaw = call(p.Kill, "is killed"), call(p.Freeze, "is frozen"), call(p.Thaw, "goes on")
	var isCut atomic.Bool
	if heal := call(p.Heal, "is healed"); heal != nil {
		noted.Heal = func() {
			if isCut.Swap(false) {
				heal()
			}
		}
	}
	if p.Cut != nil {
		noted.Cut = func(d Direction) {
			f.note("%s is cut off, %v", name, d)
			isCut.Store(true)
			p.Cut(d)
		}
	}
	return &noted
}
