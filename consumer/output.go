package consumer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/absence"
	"github.com/longshoremq/longshore/internal/published"
)

// publishEmitted publishes what a handler emitted for message i, where that is no part of the ack. Of a handler that was stuck it
// publishes nothing: the message was handled again meanwhile, and that would stand behind what its retry emitted.
func (ws *workers) publishEmitted(ctx context.Context, w *work, i int) error {
	if w.void() {
		return nil
	}
	outs := ws.takeBefore(w, i, nil)
	if len(outs) == 0 {
		return nil
	}
	var lost error
	for _, err := range publishOutputs(ctx, w.k.feed, outs) {
		lost = worse(lost, err)
	}
	return lost
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

// publishBatch publishes what a batch handler emitted for the messages that are to be acked, and says what became of each then:
// an output that is not there is the failure of the message that it was made of.
func (ws *workers) publishBatch(ctx context.Context, w *work, err error) error {
	e := w.emitted.Load()
	if e == nil || w.k.feed.output == nil || w.void() {
		return err
	}
	errs := BatchErrors(err, len(w.ms))
	if slices.ContainsFunc(errs, isFailure) && e.hasWhole() {
		return err // none of them is acked
	}
	taken := len(errs)
	if ws.judge.isOfLane(w) { // what stands behind one that failed is handled again behind it, and emits then
		taken = beforeFailure(errs)
	}
	errs, lost := ws.publishOf(ctx, w, errs, taken)
	if !lost && slices.Contains(errs[:taken], nil) { // else none of them is acked, or all are skipped
		errs, lost = ws.publishWhole(ctx, w, errs)
	}
	if !lost {
		return err
	}
	return &BatchError{errs}
}

// publishOf publishes what was emitted for each of the first taken messages of a batch that were handled. What it returns are
// errs, with those of the outputs that are not there, and whether there is one.
func (ws *workers) publishOf(ctx context.Context, w *work, errs []error, taken int) (all []error, lost bool) {
	var outs []broker.Outgoing
	var of []int // the message of each
	for i, err := range errs[:taken] {
		if err != nil {
			continue
		}
		for outs = ws.takeBefore(w, i, outs); len(of) < len(outs); {
			of = append(of, i)
		}
	}
	each := lostOutputs(ctx, w.k.feed, outs)
	if each == nil {
		return errs, false
	}
	errs = slices.Clone(errs)
	for j, err := range each {
		errs[of[j]] = worse(errs[of[j]], err)
	}
	return errs, true
}

// publishWhole publishes what was emitted for all of a batch. It comes after what was emitted for each: where that is not there
// the whole batch is handled again, and its messages would be in two such outputs. What it returns is as with publishOf.
func (ws *workers) publishWhole(ctx context.Context, w *work, errs []error) (all []error, lost bool) {
	each := lostOutputs(ctx, w.k.feed, ws.takeBefore(w, whole, nil))
	if each == nil {
		return errs, false
	}
	errs = slices.Clone(errs)
	for _, err := range each {
		for i := range errs {
			if !IsSkip(errs[i]) {
				errs[i] = worse(errs[i], err)
			}
		}
	}
	return errs, true
}

// lostOutputs is publishOutputs, which says nothing where all are there.
func lostOutputs(ctx context.Context, f *feed, outs []broker.Outgoing) []error {
	if len(outs) == 0 {
		return nil
	}
	each := publishOutputs(ctx, f, outs)
	if !slices.ContainsFunc(each, func(err error) bool { return err != nil }) {
		return nil
	}
	return each
}

// isFailure says whether a message's error keeps it, and those that go with it, from being acked.
func isFailure(err error) bool { return err != nil && !IsSkip(err) }

// beforeFailure is how many messages stand before the first that failed.
func beforeFailure(errs []error) int {
	if i := slices.IndexFunc(errs, isFailure); i >= 0 {
		return i
	}
	return len(errs)
}

// publishOutputs publishes outs, and says what became of each; nil: all are there. Those to a topic that does not exist fail at
// once while that is known, to be retried when somebody looks for it again.
func publishOutputs(ctx context.Context, f *feed, outs []broker.Outgoing) []error {
	absent, asked := toAbsent(&f.absent, outs)
	each := publishEach(ctx, f.output, asked)
	for i, o := range asked {
		var err error
		if each != nil {
			err = each[i]
		}
		f.absent.Learn(o.Topic, err)
	}
	errs := fillIn(absent, each)
	for i, err := range errs {
		if err != nil {
			errs[i] = forGood(fmt.Errorf("publishing what was emitted: %w", err))
		}
	}
	return errs
}

// toAbsent returns the errors of those of outs that go to topics known to be absent, nil where none does, and the others. Where
// this is who looks for a topic again, all that goes there are others: else a message that is half published would have failed
// for a topic that is there.
func toAbsent(absent *absence.Topics, outs []broker.Outgoing) (errs []error, others []broker.Outgoing) {
	for i, o := range outs {
		if wait, err := absent.Of(o.Topic); err != nil {
			if errs == nil {
				errs = make([]error, len(outs))
			}
			errs[i] = RetryAfter(err, wait)
		}
	}
	if errs == nil {
		return nil, outs
	}
	looked := map[string]bool{}
	for i, o := range outs {
		looked[o.Topic] = looked[o.Topic] || errs[i] == nil
	}
	for i, o := range outs {
		if looked[o.Topic] {
			errs[i], others = nil, append(others, o)
		}
	}
	if len(others) == len(outs) {
		return nil, outs
	}
	return errs, others
}

// fillIn puts what became of the others, nil where all of them are there, between the errors of toAbsent.
func fillIn(errs, others []error) []error {
	if errs == nil {
		return others
	}
	for i := range errs {
		if errs[i] == nil && len(others) > 0 {
			errs[i], others = others[0], others[1:]
		}
	}
	return errs
}

// publishEach publishes outs with one call, and says what became of each; nil: all are there.
func publishEach(ctx context.Context, p broker.Publisher, outs []broker.Outgoing) []error {
	if len(outs) == 0 {
		return nil
	}
	err := failing(func() error { return p.Publish(ctx, outs) })
	if err == nil {
		return nil
	}
	errs, told := published.Each(err, len(outs))
	if !told && len(outs) > 1 && errors.Is(err, broker.ErrRefused) {
		publishAlone(ctx, p, outs, errs)
	}
	return errs
}

// publishAlone publishes each of outs by itself: the whole call was refused, without a word about which of them that is for, and
// by that word alone all would be given up with that one.
func publishAlone(ctx context.Context, p broker.Publisher, outs []broker.Outgoing, errs []error) {
	for i := range outs {
		errs[i] = nil
		if err := publishEach(ctx, p, outs[i:i+1]); err != nil {
			errs[i] = err[0]
		}
	}
}

// forGood is the error of an output, Permanent where the broker will never take that. One that has no topic is retried: that may
// be made yet, and each message of a backlog would be a dead letter until then.
func forGood(err error) error {
	if errors.Is(err, broker.ErrRefused) && !errors.Is(err, broker.ErrNoTopic) {
		return Permanent(err)
	}
	return err
}

// worse is the one of two errors that says more of what becomes of a message.
func worse(a, b error) error {
	if a == nil || IsPermanent(b) {
		return b
	}
	return a
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
