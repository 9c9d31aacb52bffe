package consumer

import (
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
