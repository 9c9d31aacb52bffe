package pool

import "time"

// tally is what was counted since the pool's start. It has no lock.
type tally struct {
	in, done int64 // messages
	work     time.Duration
	squares  float64 // of the handler times of messages, in seconds²
	handled  int64   // T's
	refused  int64   // of done: see Worker.Refused
	reports  int64   // idle timeouts
	panics   int64
	goexits  int64
	decided  int64 // changes of size
}

// outcome is what a worker did with a T.
type outcome struct {
	n       int64 // messages
	d       time.Duration
	refused int64
}

// add takes what became of a T into the totals.
func (t *tally) add(o outcome) {
	t.handled++
	t.count(o)
}

// count takes a part of what becomes of a T into the totals.
func (t *tally) count(o outcome) {
	t.done += o.n
	t.refused += o.refused
	t.work += o.d
	if o.n > 0 {
		s := o.d.Seconds()
		t.squares += s * s / float64(o.n)
	}
}
