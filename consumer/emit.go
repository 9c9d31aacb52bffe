package consumer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/longshoremq/longshore/broker"
)

// ErrCannotEmit says that nothing can be emitted: ctx is not that of a handler's call, or nobody would publish it, since the
// source is not atomic (broker.Traits.Atomic) and there is no Config.Output. The error says which.
var ErrCannotEmit = errors.New("consumer: nothing can be emitted here")

var (
	errNoCall = fmt.Errorf("%w: the context is not the one that a consumer gave its handler, nor made of it: hand that on "+
		"(in a test, that of RecordEmits)", ErrCannotEmit)
	errNoOutput = fmt.Errorf("%w: the source is not transactional, and nothing is set to publish outputs: set Config.Output",
		ErrCannotEmit)
)

// errOver says that the call is over that something was emitted in: its message is somebody else's to decide about.
var errOver = errors.New("consumer: emitting: the handler's call is over")

// Emit publishes messages that the handler made of the one that it handles, if it returns nil, and not otherwise: what a failed
// run emitted is dropped, and a retry emits anew. Skip drops it, too. In a BatchHandler it is made of all messages of the
// batch: where any of them fails it is dropped, and those that did not fail are handled again with no attempt counted; where some
// are skipped, it goes with the others. See EmitFor.
//
// Where the source is atomic (Kafka with transactions), outputs and ack are one: who reads only what is committed sees the
// outputs of each message once, whatever happens. Otherwise they are published by Config.Output and confirmed when the handler
// has returned nil, before the ack, and a crash between the two publishes them again, with the same Outgoing.ID where they have
// none of their own: made of the consumer's name and group, of where the message stands (topic, partition, offset, time) and of
// their number, so that JetStream drops it within its duplicate window, if the handler emits the same in the same order. That of
// a batch is made of all its messages: together with others they make another one.
//
// A handler that knows its message from an earlier run, by package inbox or a table of its own, emits again before it returns
// nil. That run's outputs may not be there: the database was committed, and then the publish failed, or the process died.
//
// ctx is the handler's, or made of it. An error means that nothing was emitted, and should be returned by the handler: an output
// that the broker would never store (it wraps broker.ErrRefused, and is Permanent but in a batch), ErrCannotEmit, or a call that
// is over. It does not wait for the network. Emit may be called any number of times, by several goroutines, until the handler
// returns; the order of calls is that of the outputs. Their bytes are not copied, and must not be written to afterwards.
//
// A goroutine that outlives the handler must not emit. The context is that of the worker's next message by then, and what is
// emitted in it is taken for that one's. EmitFor names the message, and refuses then.
func Emit(ctx context.Context, outs ...broker.Outgoing) error { return emit(ctx, nil, nil, outs) }

// EmitFor is Emit in a BatchHandler, for outputs that were made of one message of the batch: they go with that one's ack,
// whatever becomes of the others. One that Config.Output cannot publish is the failure of that message alone. m is the batch's
// own, or a Clone of it.
func EmitFor(ctx context.Context, m *Message, outs ...broker.Outgoing) error {
	return emit(ctx, m, nil, outs)
}

// EmitBy is Emit for a handler with a publisher of its own: where what p publishes goes to the cluster that an atomic source
// reads, it is emitted. Otherwise p publishes it at once, as ctx lets it, and confirmed; what a failed run has published stays
// then.
func EmitBy(ctx context.Context, p broker.Publisher, outs ...broker.Outgoing) error {
	return emit(ctx, nil, p, outs)
}

type emitKey struct{}

func emit(ctx context.Context, m *Message, by broker.Publisher, outs []broker.Outgoing) error {
	in := ctx.Value(emitKey{})
	if e, ok := in.(*Emitted); ok && by == nil {
		e.add(outs)
		return nil
	}
	s, _ := in.(*contextSlot)
	atomic := s != nil && s.feed.carries(by)
	switch {
	case by != nil && !atomic:
		return by.Publish(ctx, slices.Clone(outs)) // a copy, so that outs lies on the caller's stack where it is not published here
	case s == nil:
		return errNoCall
	case !atomic && s.feed.output == nil:
		return errNoOutput
	}
	w := s.at.Load()
	if w == nil {
		return errOver
	}
	i, err := w.emitting(m)
	if err != nil {
		return err
	}
	if !atomic {
		w.emissions().add(i, false, w.emissions().keep(outs))
		return nil
	}
	if by == nil {
		by = s.feed.output
	}
	if _, wraps := by.(broker.Wrapper); wraps {
		outs = broker.Prepared(ctx, by, slices.Clone(outs))
	}
	kept := w.emissions().keep(outs)
	for j := range kept {
		if err := s.feed.emitter.CheckEmit(&kept[j]); err != nil {
			err = fmt.Errorf("emitting to %s: %w", kept[j].Topic, err)
			if w.batch { // its handler may return it as the error of all, and the others must not be given up with this one
				return err
			}
			return forGood(err)
		}
	}
	w.emissions().add(i, true, kept)
	return nil
}

// emitting is of which message the call that runs in w makes something; m names it in a batch.
func (w *work) emitting(m *Message) (i int, err error) {
	i = w.running()
	switch {
	case i < 0 || w.state.Load()&disowned != 0:
		return 0, errOver
	case m == nil && w.batch:
		return whole, nil
	case m == nil:
		return i, nil
	}
	first, end := i, i+1
	if w.batch {
		first, end = 0, len(w.ms)
	}
	for j := first; j < end; j++ {
		if w.ms[j].Token == m.Token && w.ms[j].Claim == m.Claim {
			return j, nil
		}
	}
	return 0, fmt.Errorf("consumer: emitting for a message that this call does not handle: %s/%d at %d", m.Topic, m.Partition,
		m.Offset)
}

// whole stands for all messages of a batch.
const whole = -1

// Emissions are what the calls of a work emitted, by message, until somebody settles it.
type emissions struct {
	n  int // messages of the work
	mu sync.Mutex
	// with goes with the ack, before is published before it.
	with, before made
	room         []broker.Outgoing // of which the next ones are kept
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

// Made is what was emitted for messages, sorted by their numbers. Messages are run and settled in that order, or nearly so, so
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

// emissions finds or makes those of w.
func (w *work) emissions() *emissions {
	if e := w.emitted.Load(); e != nil {
		return e
	}
	w.emitted.CompareAndSwap(nil, &emissions{n: len(w.ms)})
	return w.emitted.Load()
}

// add takes over what keep has copied.
func (e *emissions) add(i int, atomic bool, outs []broker.Outgoing) {
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

// hasWhole says whether something was emitted for a batch as a whole.
func (e *emissions) hasWhole() bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, with := e.with.find(whole)
	_, before := e.before.find(whole)
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

// ackSome acks messages of w, by their numbers, with what was emitted for them.
func (t *till) ackSome(w *work, which []int, tokens []uint64, lanes []uint64) {
	e := w.emitted.Load()
	if e == nil || w.k.feed.emitter == nil {
		t.ack(w.k, tokens, lanes)
		return
	}
	es := e.of(w, which, tokens)
	_ = t.ackEmitting(w.k, es, lanes) // which has counted and told it
	clear(es)
	lists.Put(&es)
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

// ackEmitting is ack, with what was made of the messages.
func (t *till) ackEmitting(k *claim, es []broker.Emission, lanes []uint64) error {
	n := 0
	for _, e := range es {
		n += len(e.Tokens)
	}
	err := k.feed.emitter.AckEmitting(k.Claim, es)
	t.settled(n, err)
	t.release(k, lanes, errors.Is(err, broker.ErrLost))
	return err
}

// numbers are a, a+1, …, b-1.
func numbers(a, b int) []int {
	ns := make([]int, b-a)
	for i := range ns {
		ns[i] = a + i
	}
	return ns
}

// publishEmitted publishes what a handler emitted for message i, where that is no part of the ack.
func (ws *workers) publishEmitted(ctx context.Context, w *work, i int) error {
	outs := ws.takeBefore(w, i, nil)
	if len(outs) == 0 {
		return nil
	}
	var lost error
	for _, err := range publishOutputs(ctx, w.k.feed.output, outs) {
		lost = worse(lost, err)
	}
	return lost
}

// worse is the one of two errors that says more of what becomes of a message.
func worse(a, b error) error {
	if a == nil || IsPermanent(b) {
		return b
	}
	return a
}

// takeBefore appends to outs what was emitted for message i and is published before the ack.
func (ws *workers) takeBefore(w *work, i int, outs []broker.Outgoing) []broker.Outgoing {
	own := w.emitted.Load().takeBefore(i)
	origin := ""
	for j, o := range own {
		if o.ID == "" {
			if origin == "" {
				origin = w.emitOrigin(ws.who, i)
			}
			o.ID = origin + "/" + strconv.Itoa(j)
		}
		outs = append(outs, o)
	}
	clear(own) // it lies in memory that stays as long as the work does
	return outs
}

// publishOutputs publishes outs, and says what became of each; nil: all are there.
func publishOutputs(ctx context.Context, p broker.Publisher, outs []broker.Outgoing) []error {
	err := p.Publish(ctx, outs)
	if err == nil {
		return nil
	}
	errs := make([]error, len(outs))
	var each *broker.PublishError
	own := errors.As(err, &each) && len(each.Errs) == len(outs)
	for i := range outs {
		of := err
		if own {
			of = each.Errs[i]
		}
		if of == nil {
			continue
		}
		errs[i] = forGood(fmt.Errorf("publishing what was emitted: %w", of))
	}
	return errs
}

// forGood is the error of an output, Permanent where the broker will never take that. One that has no topic is retried: that may
// be made yet, and each message of a backlog would be a dead letter until then.
func forGood(err error) error {
	if errors.Is(err, broker.ErrRefused) && !errors.Is(err, broker.ErrNoTopic) {
		return Permanent(err)
	}
	return err
}

// publishBatch publishes what a batch handler emitted for the messages that did not fail, and says what became of each then: an
// output that is not there is the failure of the message that it was made of.
func (ws *workers) publishBatch(ctx context.Context, w *work, err error) error {
	e := w.emitted.Load()
	if e == nil || w.k.feed.output == nil {
		return err
	}
	errs := errorsOf(err, len(w.ms))
	if slices.ContainsFunc(errs, isFailure) && e.hasWhole() {
		return err // none of them is acked
	}
	outs, of := ws.takeBatch(w, errs)
	if len(outs) == 0 {
		return err
	}
	lost := publishOutputs(ctx, w.k.feed.output, outs)
	if lost == nil {
		return err
	}
	errs = slices.Clone(errs)
	for j, err := range lost {
		for i := range errs {
			if of[j] == i || of[j] == whole && !IsSkip(errs[i]) {
				errs[i] = worse(errs[i], err)
			}
		}
	}
	return &BatchError{errs}
}

// takeBatch is takeBefore for the messages of a batch that were handled, and for all of them together; of has each output's.
func (ws *workers) takeBatch(w *work, errs []error) (outs []broker.Outgoing, of []int) {
	take := func(i int) {
		for outs = ws.takeBefore(w, i, outs); len(of) < len(outs); {
			of = append(of, i)
		}
	}
	for i, err := range errs {
		if err == nil {
			take(i)
		}
	}
	if slices.Contains(errs, nil) { // else all are skipped
		take(whole)
	}
	return outs, of
}

// emitOrigin begins the names of what was emitted for message i, the same at each run of it.
func (w *work) emitOrigin(who string, i int) string {
	if i == whole {
		return w.emitBatchOrigin(who)
	}
	b := make([]byte, 0, 128)
	b = append(append(append(b, "emit/"...), who...), '/')
	return string(appendPlace(b, &w.ms[i]))
}

// emitBatchOrigin is emitOrigin for a whole batch: it is named by all of its messages. By the first alone something would be
// lost: a and b are handled, what is made of them is stored, and the answer gets lost; they come again together with c; the
// broker has that name, and drops what is made of the three.
func (w *work) emitBatchOrigin(who string) string {
	h := sha256.New()
	for i := range w.ms {
		h.Write(append(appendPlace(nil, &w.ms[i]), '\n'))
	}
	return fmt.Sprintf("emit-batch/%s/%s/%x", who, appendPlace(nil, &w.ms[0]), h.Sum(nil)[:8])
}

// isFailure says whether a message's error keeps it, and those that go with it, from being acked.
func isFailure(err error) bool { return err != nil && !IsSkip(err) }

// withOthers puts off what did not fail and goes with something that did.
var withOthers = &deferError{}

// together lets none of a batch be acked where something was emitted for all of it and one failed: the others are handled
// again, and that is no attempt.
func together(w *work, errs []error) []error {
	if !w.emitted.Load().hasWhole() {
		return errs
	}
	if !slices.ContainsFunc(errs, isFailure) {
		return errs
	}
	all := make([]error, len(errs))
	for i, err := range errs {
		if all[i] = err; err == nil || IsSkip(err) {
			all[i] = withOthers
		}
	}
	return all
}

// emits takes note, at Open, of how handlers emit.
func (f *feed) emits(output broker.Publisher) {
	f.output = output
	if f.traits.Atomic {
		f.emitter, _ = f.source.(broker.Emitter)
	}
	f.emitting = f.emitter != nil || f.output != nil
}

// carries says whether what p publishes goes with the ack; nil: Config.Output, or where there is none whatever is emitted.
func (f *feed) carries(p broker.Publisher) bool {
	if p == nil {
		p = f.output
	}
	return f.emitter != nil && (p == nil || f.emitter.Carries(broker.Innermost(p)))
}

// errEmitsBefore is told at start where outputs could be part of the ack, and are not.
var errEmitsBefore = errors.New("consumer: the source is transactional and Output goes to another cluster: outputs are " +
	"published before the ack and not with it, at least once")
