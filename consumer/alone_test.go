package consumer

import (
	"testing"

	"github.com/longshoremq/longshore/broker"
)

// A worker is let alone for long only with a message that nothing waits for: neither what was handled before it, and is not
// acked, nor what is to be handled after it.
func TestAlone(t *testing.T) {
	var w work
	w.init(&claim{}, make([]broker.Message, 3), nil)
	is := func(want bool, when string) {
		t.Helper()
		if w.alone() != want {
			t.Errorf("%s: alone is %v", when, !want)
		}
	}
	is(false, "not begun")
	w.take()
	is(false, "two are not started")
	w.take()
	w.take()
	is(false, "two are not acked")
	if d0, d1, u0, u1 := w.share(); d0 != 0 || d1 != 2 || u0 < u1 {
		t.Errorf("shared %d to %d and %d to %d", d0, d1, u0, u1)
	}
	is(true, "the last runs, and the others are acked")
	w.take()
	is(false, "its worker has left")

	w = work{}
	w.init(&claim{}, make([]broker.Message, 3), nil)
	w.take()
	w.share()
	is(true, "the first runs, and others have the rest")
}
