package consumer

import (
	"errors"
	"time"

	"github.com/longshoremq/longshore/internal/chance"
)

// A judge passes a message whose handler failed on to who settles it, as decide says.
type judge struct {
	cfg     *Config
	tell    *teller
	till    *till
	batches *batches
	parked  *parking
	letters *letters
	retries *retries
}

// failed decides about a message that was taken out of its work.
func (j *judge) failed(x item, err error) {
	k, m := x.k, x.m
	var later *deferError
	if errors.As(err, &later) && k.ctx.Err() == nil {
		j.parked.putOff(x, later)
		return
	}
	d := decide(outcome{
		err: err, runs: m.Runs, attempt: m.Attempt, trust: k.feed.traits.Attempts, cancelled: k.ctx.Err() != nil,
		letters: j.cfg.DeadLetter != nil, maxDeliv: k.feed.traits.MaxDeliveries, random: chance.Float64(),
		failing: failingFor(x.first),
		crowded: j.retries.crowded(x),
	}, j.cfg.Retry)
	switch d.verdict {
	case VerdictAck:
		j.tell.count.skipped.Add(1)
		j.till.ack(k, x.tokens(), x.lane)
		j.tell.tell(Skipped{Message: m, Reason: skipReason(err)})
		return
	case VerdictGiveBack:
		j.till.giveBack(k, x.back(d.runs), x.lane, "shutdown")
		return
	}
	if x.first == 0 {
		x.first = time.Now().UnixNano()
	}
	f := Failed{Message: m, Err: err, Class: d.class, Runs: d.runs, Verdict: d.verdict, Delay: d.delay, Exhausted: d.exhausted}
	j.tell.count.failed.Add(1)
	j.tell.tell(f)
	if d.verdict == VerdictDeadLetter {
		j.letters.add(letter{item: x, failed: f})
		return
	}
	j.retries.wait(x, f, d)
}

// failingFor is how long ago first was, in Unix nanoseconds; 0: it is now.
func failingFor(first int64) time.Duration {
	if first == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(0, first)))
}

// failedBatch decides about each message of a batch that was taken out of its work. late: its context was ended by its timeout.
// It returns how many were acked because their handler said nil.
func (j *judge) failedBatch(w *work, err error, late bool) (acked int) {
	errs := errorsOf(err, len(w.ms))
	if late {
		errs = lateErrors(errs)
	}
	if w.lanes != nil && j.cfg.Batch.ByKey && w.lanes[0] != 0 {
		return j.failedLane(w, errs)
	}
	var tokens, lanes []uint64
	for i, e := range errs {
		if e == nil {
			j.tell.handled(w.ms[i : i+1])
			tokens = append(tokens, w.ms[i].Token)
			lanes = append(lanes, lanePart(w.lanes, i, i+1)...)
		}
	}
	if len(tokens) > 0 {
		j.till.ack(w.k, tokens, lanes)
	}
	for i, e := range errs {
		if e != nil {
			j.failed(w.item(i), e)
		}
	}
	return len(tokens)
}

// failedLane decides about a batch that is consecutive messages of a lane: what comes before the first that failed is done, and
// what comes behind it waits in the lane again, for it must not be handled before that one is settled. It returns how many were
// acked because their handler said nil.
func (j *judge) failedLane(w *work, errs []error) (acked int) {
	n := 0
	for n < len(errs) && (errs[n] == nil || IsSkip(errs[n])) {
		n++
	}
	if n == len(errs) {
		return j.ackSome(w, errs, w.lanes[:1])
	}
	acked = j.ackSome(w, errs[:n], nil)
	j.batches.putBehind(w, n+1, !IsDeferred(errs[n]))
	x := w.item(n)
	x.lane = w.lanes[:1] // the first one has it for all of them
	j.failed(x, errs[n])
	return acked
}

// ackSome acks the first messages of a batch, with one call, each of which was handled or skipped. It returns how many were
// handled.
func (j *judge) ackSome(w *work, errs []error, lane []uint64) (handled int) {
	var tokens []uint64
	for i, e := range errs {
		tokens = append(tokens, w.ms[i].Token)
		if e == nil {
			j.tell.handled(w.ms[i : i+1])
			handled++
		}
	}
	if len(tokens) == 0 {
		return 0
	}
	j.tell.count.skipped.Add(int64(len(errs) - handled))
	j.till.ack(w.k, tokens, lane)
	for i, e := range errs {
		if e != nil {
			j.tell.tell(Skipped{Message: &w.ms[i], Reason: skipReason(e)})
		}
	}
	return handled
}
