package consumer

import (
	"errors"
	"testing"
	"time"
	"unsafe"
)

// Whatever the wall clock was set by since: what was ten seconds ago was ten seconds ago.
func TestClockIsSteady(t *testing.T) {
	for _, step := range []time.Duration{0, -time.Hour, time.Hour} {
		now := time.Now()
		c := clock{before(t, now.Add(-time.Minute), step)}
		at := c.at(before(t, now.Add(-10*time.Second), step)) // as the pool tells it, whose epoch is from before the step, too
		if at != int64(50*time.Second) {
			t.Errorf("after a step of %v: at %v, want 50s", step, time.Duration(at))
		}
		if off := c.wall(at).Sub(now.Add(-10 * time.Second).Round(0)); off.Abs() > time.Minute {
			t.Errorf("after a step of %v: off by %v", step, off.Round(time.Second))
		}
	}
}

// Whatever the wall clock was set by since: a message that failed first ten minutes ago is given up after fifteen, and not after
// five; its letter tells of ten. What another process tells in a header is of the wall clock.
func TestGiveUpAfterIsSteady(t *testing.T) {
	const ago = 10 * time.Minute
	for _, step := range []time.Duration{0, -time.Hour, time.Hour} {
		now := time.Now()
		c := clock{before(t, now.Add(-time.Hour), step)}
		first := c.at(before(t, now.Add(-ago), step))
		for _, giveUp := range []time.Duration{5 * time.Minute, 15 * time.Minute} {
			cfg := &Config{DeadLetter: &DeadLetter{}, Retry: Retry{MaxAttempts: 9, GiveUpAfter: giveUp}}
			j := &judge{cfg: cfg, tell: &teller{clock: c}, retries: &retries{cfg: cfg}}
			k := &claim{ctx: t.Context(), feed: &feed{}}
			r := j.rule(item{k: k, m: &Message{}, past: past{first: first}}, errors.New("no tea"), false)
			if gone := r.verdict == VerdictDeadLetter; gone != (ago > giveUp) {
				t.Errorf("after a step of %v: given up %v, after %v", step, gone, giveUp)
			}
		}
		told := c.wall(first)
		if off := told.Sub(now.Add(-ago).Round(0)); off.Abs() > time.Minute {
			t.Errorf("after a step of %v: the letter is off by %v", step, off.Round(time.Second))
		}
		if off := time.Duration(c.told(told) - first); off.Abs() > time.Minute {
			t.Errorf("after a step of %v: what a header tells is off by %v", step, off.Round(time.Second))
		}
	}
}

// A header may tell any time: what is to come is now, and what nobody can have seen does not wrap around.
func TestClockIsToldAnything(t *testing.T) {
	c := newClock()
	for _, told := range []time.Time{time.Unix(0, 0), {}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), c.epoch.Round(0)} {
		if at := c.told(told); at == 0 || c.since(at) < 0 || told.Before(c.epoch) && c.since(at) < time.Hour {
			t.Errorf("told %v: at %v, %v ago", told, at, c.since(at))
		}
	}
}

// before is what time.Now would have said in place of now before the wall clock was set by step, whole seconds: Go has no other
// door to that. The seconds stand above 30 bits of nanoseconds.
func before(t *testing.T, now time.Time, step time.Duration) time.Time {
	old := now
	*(*uint64)(unsafe.Pointer(&old)) -= uint64(step/time.Second) << 30
	if old.Sub(now) != 0 || now.Round(0).Sub(old.Round(0)) != step {
		t.Fatalf("a time.Time is made otherwise: %v of %v", old, now)
	}
	return old
}
