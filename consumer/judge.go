package consumer

import (
	"slices"
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

// A ruling is what was decided about a message whose handler failed; nothing of it is done yet. The zero value: it is acked.
type ruling struct {
	decision
	err   error
	later *deferError // it is put off
}

// outcome is what is told of it.
func (r ruling) outcome(m *Message) Outcome {
	return Outcome{Message: m, Verdict: r.verdict, Err: r.err, Class: r.class, Runs: max(r.runs, m.Runs), Delay: r.delay}
}

// failed decides about a message that was taken out of its work, tells of it, and has it done. of is its call.
func (j *judge) failed(x item, err error, of begun) {
	r := j.rule(x, readable(err), false)
	of.ruled(x.m, r)
	j.carry(x, r, of)
}

// rule decides about a message whose handler failed. together: others were in its batch.
func (j *judge) rule(x item, err error, together bool) ruling {
	k, m := x.k, x.m
	if later := deferOf(err); later != nil && k.ctx.Err() == nil {
		return ruling{decision: decision{verdict: VerdictDefer, delay: later.wait}, err: err, later: later}
	}
	d := decide(outcome{
		err: err, runs: m.Runs, refused: x.refused, attempt: m.Attempt, trust: k.feed.traits.Attempts, cancelled: k.ctx.Err() != nil,
		letters: j.cfg.DeadLetter != nil, maxDeliv: k.feed.maxDeliveries(), random: chance.Float64(),
		failing: j.tell.clock.lasted(x.first), together: together,
		crowded: j.retries.crowded(x),
	}, j.cfg.Retry)
	d.keep = d.keep || d.verdict == VerdictRetry && IsOverloaded(err) && j.batches.keeps(x, d.runs) &&
		j.retries.pressure(k) < retryTopicFrom
	return ruling{err: err, decision: d}
}

// carry does with a message as was ruled.
func (j *judge) carry(x item, r ruling, of begun) {
	k, m := x.k, x.m
	switch r.verdict {
	case VerdictDefer:
		j.parked.putOff(x, r.later)
		return
	case VerdictAck:
		j.tell.count.skipped.Add(1)
		j.till.ack(k, x.tokens(), x.lane)
		j.tell.tell(Skipped{Message: m, Reason: skipReason(r.err)})
		return
	case VerdictGiveBack:
		j.till.giveBack(k, x.back(r.runs), x.lane, k.whyEnded())
		return
	}
	if x.first == 0 {
		x.first = j.tell.clock.at(time.Now())
	}
	if IsOverloaded(r.err) {
		x.refused++
	}
	f := Failed{
		Message: m, Err: r.err, Class: r.class, Runs: r.runs, Verdict: r.verdict, Delay: r.delay, Exhausted: r.exhausted,
		Context: of.values(),
	}
	j.tell.count.failed.Add(1)
	j.tell.tell(f)
	if r.verdict == VerdictDeadLetter {
		j.letters.add(letter{item: x, failed: f})
		return
	}
	j.retries.wait(x, f, r.decision)
}

// failedBatch decides about each message of a batch that was taken out of its work, tells of all of them, and has it done.
// late: its context was ended by its timeout. of is its call. It returns how many were acked because their handler said nil.
func (j *judge) failedBatch(w *work, err error, late bool, of begun) (acked int) {
	errs := readableEach(BatchErrors(err, len(w.ms)))
	if late {
		errs = lateErrors(errs)
	}
	said := errs
	errs = together(w, errs)
	if j.isOfLane(w) {
		return j.failedLane(w, errs, said, of)
	}
	rulings := make([]ruling, len(errs))
	for i, e := range errs {
		if e != nil {
			rulings[i] = j.rule(w.item(i), e, len(errs) > 1)
		}
	}
	of.ruledEach(w.ms, rulings)
	var tokens, lanes []uint64
	var which []int
	for i, e := range errs {
		if e == nil {
			which = append(which, i)
			j.tell.handled(w.ms[i : i+1])
			tokens = append(tokens, w.ms[i].Token)
			lanes = append(lanes, lanePart(w.lanes, i, i+1)...)
		}
	}
	if len(tokens) > 0 {
		j.till.ackSome(w, which, tokens, lanes)
	}
	for i, e := range errs {
		if e != nil {
			j.carry(w.item(i), rulings[i], of)
		}
	}
	return len(tokens)
}

// isOfLane says whether a batch is consecutive messages of a lane.
func (j *judge) isOfLane(w *work) bool { return w.lanes != nil && j.cfg.Batch.ByKey && w.lanes[0] != 0 }

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

// withOthers puts off what did not fail and goes with something that did.
var withOthers = &deferError{}

// failedLane decides about a batch that is consecutive messages of a lane: what comes before the first that failed is done, and
// what comes behind it waits in the lane again, for it must not be handled before that one is settled. said is what the handler
// said of each. It returns how many were acked because their handler said nil.
func (j *judge) failedLane(w *work, errs, said []error, of begun) (acked int) {
	rulings := make([]ruling, len(errs))
	n := beforeFailure(errs)
	for i, err := range errs[:n] {
		rulings[i].err = err
	}
	if n == len(errs) {
		of.ruledEach(w.ms, rulings)
		return j.ackSome(w, errs, w.lanes[:1])
	}
	x := w.item(n)
	x.lane = w.lanes[:1] // the first one has it for all of them
	rulings[n] = j.rule(x, errs[n], len(errs) > 1)
	for i := n + 1; i < len(errs); i++ {
		rulings[i].verdict = VerdictDefer
	}
	of.ruledEach(w.ms, rulings)
	acked = j.ackSome(w, errs[:n], nil)
	// One that its handler put off is nobody's fault. But one that is put off since another did not come to its end (together) goes
	// with it again at once: without a call of its own that would be so again and again, and use up no attempt.
	j.till.putBehind(w, n+1, !IsDeferred(said[n]))
	j.carry(x, rulings[n], of)
	return acked
}

// ackSome acks the first messages of a batch, with one call, each of which was handled or skipped. It returns how many were
// handled.
func (j *judge) ackSome(w *work, errs []error, lane []uint64) (handled int) {
	var tokens []uint64
	for i, e := range errs {
		tokens = append(tokens, w.ms[i].Token)
		if e != nil {
			w.emitted.Load().take(i) // skipped
		}
		if e == nil {
			j.tell.handled(w.ms[i : i+1])
			handled++
		}
	}
	if len(tokens) == 0 {
		return 0
	}
	if handled == 0 {
		w.emitted.Load().take(whole)
	}
	j.tell.count.skipped.Add(int64(len(errs) - handled))
	j.till.ackSome(w, numbers(0, len(errs)), tokens, lane)
	for i, e := range errs {
		if e != nil {
			j.tell.tell(Skipped{Message: &w.ms[i], Reason: skipReason(e)})
		}
	}
	return handled
}
