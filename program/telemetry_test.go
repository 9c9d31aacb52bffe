package program

import (
	"testing"
	"time"
	"unsafe"
)

// TestExportErrorsGoOn: what cannot be sent is logged once in a minute, whatever the wall clock is set to meanwhile.
func TestExportErrorsGoOn(t *testing.T) {
	var h exportErrors
	now := time.Now()
	ahead := now // as it was before the wall clock was set back by an hour: its seconds stand above 30 bits of nanoseconds
	*(*uint64)(unsafe.Pointer(&ahead)) += uint64(time.Hour/time.Second) << 30
	if ahead.Sub(now) != 0 || ahead.Round(0).Sub(now.Round(0)) != time.Hour {
		t.Fatalf("a time.Time is made otherwise: %v of %v", ahead, now)
	}
	for _, c := range []struct {
		at   time.Time
		left int64
		want bool
	}{
		{ahead, 0, true}, {now.Add(time.Second), 0, false}, {now.Add(59 * time.Second), 0, false}, {now.Add(61 * time.Second), 2, true},
	} {
		if left, ok := h.due(c.at); ok != c.want || left != c.left {
			t.Errorf("at %v: %v with %d suppressed, want %v with %d", c.at.Sub(now), ok, left, c.want, c.left)
		}
	}
}
