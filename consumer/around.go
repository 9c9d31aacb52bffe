package consumer

import (
	"context"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// An Around is called before each call of Handler or Batch.Handler, with its context and its messages: one, or those of a batch.
// The handler gets the context that it returns, which derives from ctx. It is called, too, for messages that no handler is to see
// (too large, or ending processes), for they fail as those of a call do. end is told what becomes of the messages; nil: nobody
// is, which costs less.
//
// The values of the context stay with a message that fails: Failed has them, and the publish to a retry topic or to the dead
// letters.
//
// Workers call it, several at once: it must be quick. A panic is one of the handler. ms is good until it returns; the messages
// may be kept.
type Around func(ctx context.Context, ms []*Message) (to context.Context, end End)

// An End is told once what became of each message of a call, in the call's order, before they are settled. It must be quick. A
// panic is told (Panicked), and changes nothing; it must not end its goroutine, as an Observer must not. Any goroutine calls it:
// a message whose handler is stuck is decided about while that still runs. It is not told of a call that has not returned when
// Run does.
type End func([]Outcome)

// An Outcome is what a handler call came to for one message.
type Outcome struct {
	Message *Message
	Verdict Verdict
	// Err is what failed, or a Skip or Defer; nil where the handler returned nil, and of a message behind one of its lane that
	// failed.
	Err error
	// Class, Runs and Delay are as in Failed. Class is empty where nothing failed.
	Class string
	Runs  int32
	Delay time.Duration
}

// begun is a handler call as Around has begun it. The zero value: there is no Around.
type begun struct {
	ctx  context.Context // what the handler got
	end  End             // nil: nobody is told
	tell *teller
}

// over tells what became of the call.
func (b begun) over(all []Outcome) { b.tell.survive("End", func() { b.end(all) }) }

// values are those of the call's context; nil: there are none.
func (b begun) values() context.Context {
	if b.ctx == nil {
		return nil
	}
	return context.WithoutCancel(b.ctx)
}

// handled tells that all messages are done.
func (b begun) handled(ms []broker.Message) {
	if b.end == nil {
		return
	}
	all := make([]Outcome, len(ms))
	for i := range ms {
		all[i] = Outcome{Message: &ms[i], Verdict: VerdictAck, Runs: ms[i].Runs}
	}
	b.over(all)
}

// ruled tells what was decided about one message.
func (b begun) ruled(m *Message, r ruling) {
	if b.end != nil {
		b.over([]Outcome{r.outcome(m)})
	}
}

// ruledEach tells what was decided about each message of a batch.
func (b begun) ruledEach(ms []broker.Message, rs []ruling) {
	if b.end == nil {
		return
	}
	all := make([]Outcome, len(ms))
	for i := range ms {
		all[i] = rs[i].outcome(&ms[i])
	}
	b.over(all)
}

// A told is a call whose end somebody is told of, as the watchdog sees it: message i of w.
type told struct {
	begun
	w *work
	i int
}

// begin calls Around, where there is one, before message i of w is handed over, with the messages ms.
func (ws *workers) begin(ctx context.Context, l *local, w *work, i int, ms []*Message) context.Context {
	if l.told.Load() != nil {
		l.told.Store(nil)
	}
	l.begun = begun{} // Around might panic
	to, end := ws.around(ctx, ms)
	if to == nil {
		to = ctx
	}
	l.begun = begun{to, end, ws.tell}
	if end != nil {
		l.told.Store(&told{l.begun, w, i})
	}
	return to
}

// toldOf is message i's call as far as it is told of: for the watchdog, which looks at another's local.
func (l *local) toldOf(w *work, i int) begun {
	if t := l.told.Load(); t != nil && t.w == w && t.i == i {
		return t.begun
	}
	return begun{}
}

// callAround is a call of the handler with Around before it.
func (ws *workers) callAround(ctx context.Context, l *local, w *work, i int) {
	l.calls++
	m := &w.ms[i]
	l.one[0] = m
	ctx = ws.begin(ctx, l, w, i, l.one[:])
	err := ws.guard.check(m)
	if err == nil {
		err = ws.handler(ctx, m)
	}
	if err == nil && w.emitted.Load() != nil {
		err = ws.publishEmitted(ctx, w, i)
	}
	if err != nil {
		l.count(err)
		ws.failed(l, w, i, err)
		return
	}
	l.good++
	switch {
	case l.begun.end != nil:
		ws.ackTold(l, w, i)
	case w.each:
		ws.ackEach(l, w, i)
	}
}

// ackTold acks what a handler finished whose end somebody is told of. It is taken out of the work first, so that either the
// worker tells of it or the watchdog, which has taken it.
func (ws *workers) ackTold(l *local, w *work, i int) {
	if from, _, ok := w.takeOut(i); ok {
		l.begun.handled(w.part(i, i+1))
		ws.ackPart(l, w, from, i+1)
	}
}
