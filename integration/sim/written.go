package sim

import (
	"cmp"
	"slices"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/integration/ledger"
)

// judgeOutputs looks at what handlers have emitted, as it stands in the log for who reads what is committed. Outputs and ack are
// one (broker.Emitter), so that
//
//   - an output is there at most once, and only where the engine has acked with it and was not told that the message was lost;
//   - it is there only for a run that returned nil: what a run emitted that failed, was cancelled, or returned Skip, is dropped;
//   - of a message that is handled one run has its outputs there, all of them, or its dead letter is there, or it was skipped,
//     and never two of these. What the broker was made to deliver again is another message in that. What it has dropped (trimmed,
//     or with the whole topic) may have none: who was to handle it has never had it, or could not ack it any more;
//   - but an ack that said nil holds, whatever became of the message since, unless its process was killed or has told that
//     settles of that partition are unconfirmed;
//   - their order is that of the acks: see judgeOutputOrder.
func (r *run) judgeOutputs() {
	if r.schedule.Settings.Emits == 0 || r.outputs == nil {
		return
	}
	if r.schedule.Settings.Bridge {
		r.judgeBridged()
		return
	}
	ran, there := map[output]*entry{}, map[output]int{}
	for _, e := range r.book.entries {
		ran[output{e.message, e.nth, 0}] = e
	}
	for i := range r.outputs {
		o, ours := outputOf(r.outputs[i].Value)
		e := ran[output{o.message, o.nth, 0}]
		if !ours || e == nil {
			r.book.find("an output is there that nobody emitted: %q", r.outputs[i].Value)
			continue
		}
		if there[o]++; there[o] == 1 {
			r.judgeOutput(o, e)
		}
	}
	for o, n := range there {
		if n > 1 {
			r.book.find("output %v is there %d times", o, n)
		}
	}
	for n := range r.book.stored {
		r.judgeOutputsOf(n, there)
	}
	for o, x := range r.book.offers {
		if there[o] == 0 && x.holds && !x.doubted && !x.process.isDead() {
			r.book.find("output %v is not there: %s has acked with it, and told of nothing since", o, x.process.name)
		}
	}
	r.judgeOutputOrder()
}

// judgeOutput looks at one that is there.
func (r *run) judgeOutput(o output, e *entry) {
	switch x := r.book.offers[o]; {
	case e.outcome != ledger.Done || e.act == Skip:
		r.book.find("output %v is there, of a run that %s has %v, and told to be %q", o, e.process.name, e.outcome, e.act)
	case x == nil:
		r.book.find("output %v is there, and nobody has acked with it", o)
	case x.lost:
		r.book.find("output %v is there, and its ack by %s said that the message was lost", o, x.process.name)
	}
}

// judgeOutputsOf looks at those of one message.
func (r *run) judgeOutputsOf(n int, there map[output]int) {
	b, makes := r.book, r.schedule.makes(n)
	runs, skipped := 0, false
	for _, e := range b.entries {
		if e.message != n {
			continue
		}
		has := 0
		for i := range makes {
			has += min(1, there[output{n, e.nth, i}])
		}
		skipped = skipped || e.act == Skip && e.outcome == ledger.Done
		runs += min(1, has)
		if has > 0 && has < makes {
			b.find("m%d has %d outputs of run %d, which emitted %d", n, has, e.nth, makes)
		}
	}
	letters := r.inLetters[n]
	switch most := 1 + r.deliveredAgain(n); {
	case runs+letters > most:
		b.find("m%d has outputs of %d runs and %d dead letters, which is %d too many", n, runs, letters, runs+letters-most)
	case makes > 0 && runs+letters == 0 && !skipped && b.stored[n].goneAt.IsZero():
		b.find("m%d has no outputs, and is neither dead-lettered nor skipped", n)
	}
}

// deliveredAgain is how often the broker was made to deliver a message again, by a fault or by a commit of the topic's earlier
// one.
func (r *run) deliveredAgain(n int) (times int) {
	for _, t := range r.book.troubles {
		if t.message == n {
			times++
		}
	}
	var before *entry
	for _, e := range r.book.entries {
		if e.message != n || e.outcome != ledger.Done {
			continue
		}
		if before != nil && r.setBack(n, before, e) {
			times++
		}
		before = e
	}
	return times
}

// judgeOutputOrder looks at each partition of the outputs by itself. There the outputs of a run stand in the order in which it
// emitted them; those of two acks under one claim in the order of these, where one call was over before the other began; and
// where an order is promised, those of a lane in the order of its messages, whoever has acked them. What was delivered again is
// in no order; nor is a message whose dead letter was acked: others go on behind it, and where its process died before the letter
// was stored, or gave the partition away, it is handled again.
func (r *run) judgeOutputOrder() {
	b := r.book
	byPlace := slices.SortedFunc(slices.Values(r.outputs), func(x, y broker.Message) int {
		return cmp.Or(cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.Offset, y.Offset))
	})
	type inLane struct {
		lane string
		to   int32
	}
	type ofClaim struct {
		claim *broker.Claim
		to    int32
	}
	lanes, asked, last := map[inLane]*entry{}, map[ofClaim]output{}, map[output]int{}
	for _, m := range byPlace {
		o, _ := outputOf(m.Value)
		x, i := b.offers[o], slices.IndexFunc(b.entries, func(e *entry) bool { return e.message == o.message && e.nth == o.nth })
		if x == nil || i < 0 {
			continue // which is a finding of its own
		}
		e := b.entries[i]
		run := output{o.message, o.nth, int(m.Partition)}
		if before, some := last[run]; some && before > o.index {
			b.find("output %v stands behind output %d of its run", o, before)
		}
		last[run] = o.index
		claim := ofClaim{x.claim, m.Partition}
		before, some := asked[claim]
		if some && x.said < b.offers[before].asked {
			b.find("output %v stands behind %v, which was acked later under the same claim", o, before)
		}
		if !some || x.asked > b.offers[before].asked {
			asked[claim] = o
		}
		if e.lane == "" || !r.ordered || r.deliveredAgain(o.message) > 0 || b.letters[o.message] > 0 {
			continue
		}
		lane := inLane{e.lane, m.Partition}
		if first := lanes[lane]; first != nil && r.placeOf(first) > r.placeOf(e) {
			b.find("output %v stands behind those of m%d, which comes later in lane %s", o, first.message, e.lane)
		}
		lanes[lane] = e
	}
}
