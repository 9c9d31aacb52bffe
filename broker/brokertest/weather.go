package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// did notes what the case did to everybody.
func (w *world) did(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.finished { // what is mended at the end is of no interest
		w.weather = append(w.weather, fmt.Sprintf("%v ", time.Since(w.began).Round(100*time.Microsecond))+fmt.Sprintf(format, args...))
	}
}

// note lets what is done to the broker be told when the case fails.
func (w *world) note(s *System) *System {
	noted := *s
	noted.Down, noted.Up = noteCall(w, s.Down, "the broker goes down"), noteCall(w, s.Up, "the broker is up")
	noted.ForgetSettles = noteCall(w, s.ForgetSettles, "the broker forgets settles")
	claimed := func(what string, f func(testing.TB, *broker.Claim)) func(testing.TB, *broker.Claim) {
		return noteOne(w, f, func(c *broker.Claim) string { return fmt.Sprintf("%s of %s/%d", what, c.Topic, c.Partition) })
	}
	noted.Revoke, noted.Steal, noted.Bounce = claimed("Revoke", s.Revoke), claimed("Steal", s.Steal), claimed("Bounce", s.Bounce)
	noted.Redeliver = noteOne(w, s.Redeliver, func(m *broker.Message) string { return "Redeliver of " + id(m) })
	noted.FailSettles = noteOne(w, s.FailSettles, func(n int) string { return fmt.Sprintf("the next %d settles fail", n) })
	noted.SlowSettles = noteOne(w, s.SlowSettles, func(d time.Duration) string { return fmt.Sprintf("exchanges take %v longer", d) })
	noted.Recreate = noteOne(w, s.Recreate, func(topic string) string { return "Recreate of " + topic })
	noted.Undecodable = noteOne(w, s.Undecodable, func(topic string) string { return "something undecodable in " + topic })
	if s.Trim != nil {
		noted.Trim = func(t testing.TB, topic string, n int) {
			w.did("Trim of %d in %s", n, topic)
			s.Trim(t, topic, n)
		}
	}
	return &noted
}

func noteCall(w *world, f func(testing.TB), what string) func(testing.TB) {
	if f == nil {
		return nil
	}
	return func(t testing.TB) {
		w.did("%s", what)
		f(t)
	}
}

func noteOne[T any](w *world, f func(testing.TB, T), what func(T) string) func(testing.TB, T) {
	if f == nil {
		return nil
	}
	return func(t testing.TB, x T) {
		w.did("%s", what(x))
		f(t, x)
	}
}

// noteProcess does the same for a process.
func (w *world) noteProcess(name string, p *Process) *Process {
	noted := *p
	call := func(f func(), what string) func() {
		if f == nil {
			return nil
		}
		return func() {
			w.did("%s %s", name, what)
			f()
		}
	}
	noted.Kill, noted.Freeze, noted.Thaw = call(p.Kill, "is killed"), call(p.Freeze, "is frozen"), call(p.Thaw, "goes on")
	noted.Heal = call(p.Heal, "is healed")
	if p.Cut != nil {
		noted.Cut = func(d Direction) {
			w.did("%s is cut off, %v", name, d)
			p.Cut(d)
		}
	}
	return &noted
}
