package consumer

import (
	"cmp"
	"slices"
	"sync"

	"github.com/longshoremq/longshore/broker"
)

// emissions are what the calls of a work emitted, by message, until somebody settles it.
type emissions struct {
	n  int // messages of the work
	mu sync.Mutex
	// with goes with the ack, before is published before it.
	with, before made
	room         []broker.Outgoing // of which the next ones are kept
}

// emissions finds or makes those of w.
func (w *work) emissions() *emissions {
	if e := w.emitted.Load(); e != nil {
		return e
	}
	w.emitted.CompareAndSwap(nil, &emissions{n: len(w.ms)})
	return w.emitted.Load()
}

// keep copies outs, for the caller may use its slice again. All that the messages of a hand-out emit lies in a few pieces.
func (e *emissions) keep(outs []broker.Outgoing) []broker.Outgoing {
	e.mu.Lock()
	defer e.mu.Unlock()
	if free := cap(e.room) - len(e.room); free < len(outs) {
		e.room = make([]broker.Outgoing, 0, max(len(outs), min(64, 2*cap(e.room)), min(8, e.n)))
	}
	from := len(e.room)
	e.room = append(e.room, outs...)
	return e.room[from:len(e.room):len(e.room)]
}

// add takes over what keep has copied. Nothing is no emission: as one of a whole batch it would tie its messages together.
func (e *emissions) add(i int, atomic bool, outs []broker.Outgoing) {
	if len(outs) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !atomic {
		e.before.add(i, outs)
		return
	}
	if e.with == nil { // as a rule each message emits something
		e.with = make(made, 0, e.n)
	}
	e.with.add(i, outs)
}

// take takes what goes with an ack; takeBefore what is published before it. A nil e has nothing.
func (e *emissions) take(i int) []broker.Outgoing {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	outs := e.with.take(i)
	if len(e.with) == 0 { // a work stays in memory with others, and its outputs need not
		e.with, e.room = nil, nil
	}
	return outs
}

func (e *emissions) takeBefore(i int) []broker.Outgoing {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.before.take(i)
}

// has says whether something was emitted for message i: with is what goes with the ack, before what is published before it.
func (e *emissions) has(i int) (with, before bool) {
	if e == nil {
		return false, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, with = e.with.find(i)
	_, before = e.before.find(i)
	return with, before
}

// hasWhole says whether something was emitted for a batch as a whole.
func (e *emissions) hasWhole() bool {
	with, before := e.has(whole)
	return with || before
}

// of puts tokens and what was emitted together: of the messages with these numbers, or of a batch as a whole.
func (e *emissions) of(w *work, which []int, tokens []uint64) (es []broker.Emission) {
	if all := e.take(whole); len(all) > 0 {
		var outs []broker.Outgoing
		for _, i := range which {
			outs = append(outs, e.take(i)...)
		}
		return []broker.Emission{{Tokens: tokens, Outs: append(outs, all...)}}
	}
	es = listFor(len(which))
	for j, i := range which {
		outs := e.take(i)
		if last := len(es) - 1; last >= 0 && len(outs)+len(es[last].Outs) == 0 {
			es[last].Tokens = tokens[j-len(es[last].Tokens) : j+1]
			continue
		}
		es = append(es, broker.Emission{Tokens: tokens[j : j+1], Outs: outs})
	}
	return es
}

// made is what was emitted for messages, sorted by their numbers. Messages are run and settled in that order, or nearly so, so
// that one is added at the end and taken from the front.
type made []madeOf

type madeOf struct {
	i    int
	outs []broker.Outgoing
}

func (x made) find(i int) (at int, found bool) {
	switch n := len(x); {
	case n == 0 || x[n-1].i < i:
		return n, false
	case x[0].i == i:
		return 0, true
	}
	return slices.BinarySearchFunc(x, i, func(m madeOf, i int) int { return cmp.Compare(m.i, i) })
}

// add takes outs over; nothing may stand behind them in their memory.
func (x *made) add(i int, outs []broker.Outgoing) {
	at, found := x.find(i)
	if !found {
		*x = slices.Insert(*x, at, madeOf{i, outs})
		return
	}
	(*x)[at].outs = append((*x)[at].outs, outs...)
}

func (x *made) take(i int) (outs []broker.Outgoing) {
	at, found := x.find(i)
	switch {
	case !found:
		return nil
	case at == 0:
		outs = (*x)[0].outs
		(*x)[0].outs, *x = nil, (*x)[1:]
	default:
		outs = (*x)[at].outs
		*x = slices.Delete(*x, at, at+1)
	}
	return outs
}

// lists are of emissions that were given to a source, which does not keep them.
var lists sync.Pool

// listFor is an empty list with room for n.
func listFor(n int) []broker.Emission {
	if es, ok := lists.Get().(*[]broker.Emission); ok && cap(*es) >= n {
		return (*es)[:0]
	}
	return make([]broker.Emission, 0, max(n, 16))
}
