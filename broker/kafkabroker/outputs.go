package kafkabroker

import (
	"cmp"
	"errors"
	"slices"

	"github.com/longshoremq/longshore/broker"
)

// Outputs are what was emitted with acks of a partition and is in no transaction, in the order of the acks.
type outputs struct {
	waiting []*emission
	gone    bool // nobody stores them any more
}

// An emission is messages that were acked together, and what was made of them. Until that is stored they are not finished, for a
// commit.
type emission struct {
	number  uint64 // of all acks of the source with outputs
	offsets []int64
	one     [1]int64 // of offsets, where it is one
	outs    []broker.Outgoing
	bytes   int64
}

// The bounds of how many bytes of outputs a transaction has: one batch at least; more than the most is never held.
const (
	outputsLeast = batchLimit
	outputsMost  = 1 << 30
)

// upTo is the number of the last emission for which there is room, of one at least; 0: there is for all. Those of all partitions
// go in one order.
func upTo(room int64, waiting []*emission) uint64 {
	slices.SortFunc(waiting, func(a, b *emission) int { return cmp.Compare(a.number, b.number) })
	left := room
	for i, e := range waiting {
		if left -= e.bytes; left < 0 {
			return waiting[max(i-1, 0)].number
		}
	}
	return 0
}

// Room is the memory of the emissions of one call, in two pieces and not in two for each: what is emitted in one call is stored
// together, or nearly so.
type room struct {
	es      []emission
	offsets []int64
}

func roomFor(es []broker.Emission) room {
	n, offsets := 0, 0
	for i := range es {
		if len(es[i].Outs) > 0 {
			n++
			if len(es[i].Tokens) > 1 {
				offsets += len(es[i].Tokens)
			}
		}
	}
	return room{make([]emission, 0, n), make([]int64, 0, offsets)}
}

// add makes an emission. It copies the offsets.
func (r *room) add(number uint64, offsets []int64, outs []broker.Outgoing) *emission {
	r.es = append(r.es, emission{number: number, outs: outs})
	e := &r.es[len(r.es)-1]
	if len(offsets) == 1 {
		e.one[0] = offsets[0]
		e.offsets = e.one[:]
	} else {
		from := len(r.offsets)
		r.offsets = append(r.offsets, offsets...)
		e.offsets = r.offsets[from:len(r.offsets):len(r.offsets)]
	}
	for i := range outs {
		e.bytes += int64(outgoingSize(&outs[i]))
	}
	return e
}

// A sieve says which outputs may be stored now.
type sieve struct {
	blocked func(topic string) bool // topics that nothing may go to; nil: none is
	upTo    uint64                  // the last number that may go; 0: all may
}

// take takes out what may be stored now: what goes to none of the topics that are blocked, and stands behind nothing that goes
// to the same topics and may not.
func (x *outputs) take(by sieve) (es []*emission) {
	if by.blocked == nil && by.upTo == 0 || len(x.waiting) == 0 {
		es, x.waiting = x.waiting, nil
		return es
	}
	behind := make(map[string]bool)
	x.waiting = slices.DeleteFunc(x.waiting, func(e *emission) bool {
		stays := by.upTo > 0 && e.number > by.upTo || slices.ContainsFunc(e.outs, func(o broker.Outgoing) bool {
			return behind[o.Topic] || by.blocked != nil && by.blocked(o.Topic)
		})
		if stays {
			for i := range e.outs {
				behind[e.outs[i].Topic] = true
			}
			return false
		}
		es = append(es, e)
		return true
	})
	return es
}

// ready says whether take would take anything.
func (x *outputs) ready(by sieve) bool {
	if by.blocked == nil && by.upTo == 0 {
		return len(x.waiting) > 0
	}
	return len(x.takable(by)) > 0
}

// takable is what take would take.
func (x *outputs) takable(by sieve) []*emission {
	y := outputs{waiting: slices.Clone(x.waiting)}
	return y.take(by)
}

// putBack undoes take.
func (x *outputs) putBack(es []*emission) {
	x.waiting = append(es, x.waiting...)
	slices.SortFunc(x.waiting, func(a, b *emission) int { return cmp.Compare(a.number, b.number) })
}

// drop lets go of what waits, for nobody stores it any more, and returns its bytes.
func (x *outputs) drop() (bytes int64) {
	for _, e := range x.waiting {
		bytes += e.bytes
	}
	x.waiting, x.gone = nil, true
	return bytes
}

// ackEmitting settles messages as handled, and keeps what was made of them for a transaction.
func (x *settles) ackEmitting(p *part, es []broker.Emission) error {
	var o outcome
	before := p.tr.acked
	made := roomFor(es)
	var offsets []int64
	for _, e := range es {
		offsets = offsets[:0]
		for _, t := range e.Tokens {
			ack := p.tr.ack
			if len(e.Outs) > 0 {
				ack = p.tr.ackKept
			}
			how, size := ack(t)
			x.settled(p, t, how, size, &o)
			if how == settledNow {
				at, _ := splitToken(t)
				offsets = append(offsets, at)
				if p.mark == running {
					x.solo.cleared(p, true)
				}
			}
		}
		if len(e.Outs) > 0 && len(offsets) > 0 {
			x.emitted++
			one := made.add(x.emitted, offsets, e.Outs)
			p.outs.waiting = append(p.outs.waiting, one)
			x.gate.Hold(0, one.bytes)
		}
	}
	x.count(p.tr.acked - before)
	return x.done(p, o)
}

// stored says that a transaction has them.
func (x *commits) stored(p *part, es []*emission) {
	for _, e := range es {
		p.tr.stored(e.offsets)
		x.gate.Hold(0, -e.bytes)
	}
	if len(es) > 0 {
		x.bells.look()
	}
}

// unsent takes back what was on its way and did not come to be stored.
func (x *commits) unsent(ds []due) {
	for _, d := range ds {
		if d.p.outs.gone {
			for _, e := range d.es {
				x.gate.Hold(0, -e.bytes)
			}
			continue
		}
		for _, e := range d.es {
			d.p.tr.keep(e.offsets)
		}
		d.p.outs.putBack(d.es)
	}
}

// takeBack takes back acks whose outputs their topics refuse. No later try would store them, and all that goes to those topics
// would wait for them. Their messages come again, and emit nothing of the kind any more: CheckEmit.
func (x *commits) takeBack(by *demands) {
	if by.none() {
		return
	}
	for _, p := range slices.Concat(x.r.turns, x.r.ending) {
		n, lowest, why := int64(0), int64(maxOffset), error(nil)
		p.outs.waiting = slices.DeleteFunc(p.outs.waiting, func(e *emission) bool {
			err := by.refuseAny(e.outs)
			if err == nil {
				return false
			}
			p.tr.takeBack(e.offsets)
			x.gate.Hold(0, -e.bytes)
			n, lowest, why = n+int64(len(e.offsets)), min(lowest, slices.Min(e.offsets)), err
			return true
		})
		if n > 0 {
			p.rewind(lowest)
			x.events.Say(broker.Event{Kind: broker.Unconfirmed, Claim: p.claim, N: n, Err: why})
			signal(x.bells.kick)
			x.solo.away()
		}
	}
}

// errUntold is why acks do not hold whose topic was deleted while their transaction got no answer.
var errUntold = errors.New("kafkabroker: the topic was deleted, and nobody can tell whether the transaction with their outputs " +
	"was committed")

// untold lets go of outputs that are stored, or not: their messages are gone, and to write them again could write them twice.
// Of a claim that was lost it was said when that was.
func (x *commits) untold(ds []due) {
	for _, d := range ds {
		n := int64(0)
		for _, e := range d.es {
			x.gate.Hold(0, -e.bytes)
			if !d.p.outs.gone {
				d.p.tr.stored(e.offsets)
				n += int64(len(e.offsets))
			}
		}
		if n > 0 {
			d.p.tr.confirmed += n
			x.events.Say(broker.Event{Kind: broker.Unconfirmed, Claim: d.p.claim, N: n, Err: errUntold})
		}
	}
}

// ackKept settles a message as handled that is not finished before what was made of it is stored.
func (t *tracker) ackKept(tok uint64) (how settling, size uint32) {
	e, how, size := t.settle(tok)
	if e == nil {
		return how, size
	}
	e.state = kept
	t.openN--
	t.keptN++
	t.acked++
	delete(t.runs, e.offset)
	t.changed()
	return how, size
}

// send says that what was made of messages is on its way with the next snapshot; keep, that it did not come to be stored;
// stored, that it did.
func (t *tracker) send(offsets []int64) { t.keptN -= t.turn(offsets, kept, sending) }
func (t *tracker) keep(offsets []int64) { t.keptN += t.turn(offsets, sending, kept) }
func (t *tracker) stored(offsets []int64) {
	t.unmetered += int(t.turn(offsets, sending, done))
	t.advance()
}

// takeBack says that what was made of messages is not stored and never will be: they are to be handled again.
func (t *tracker) takeBack(offsets []int64) {
	n := t.turn(offsets, kept, back)
	t.keptN -= n
	t.acked -= n
	t.openN += int(n)
	for _, o := range offsets {
		if i, found := t.find(o); found && t.list[i].state == back {
			t.list[i].gen++
		}
	}
	t.changed()
}

func (t *tracker) turn(offsets []int64, from, to uint8) (n int64) {
	for _, o := range offsets {
		if i, found := t.find(o); found && t.list[i].state == from {
			t.list[i].state = to
			n++
		}
	}
	return n
}

// buried says that the log is gone: what was acked needs no commit any more. But what was made of it and is not stored never
// will be, and somebody has to be told so.
func (t *tracker) buried() {
	missed := int64(0)
	for _, e := range t.list {
		if e.state == kept || e.state == sending {
			missed++
		}
	}
	t.confirmed = t.acked - missed
}

// base is the lowest offset that is unfinished once what is on its way is stored.
func (t *tracker) base() int64 {
	for _, e := range t.list {
		if e.state != done && e.state != sending {
			return e.offset
		}
	}
	return t.passed
}

// Where each finished message has outputs, the metadata has to have room for all of them, or what does not fit is done again
// after a crash and has its outputs twice. A bit for each offset has room for mapWidth of them, and a list of lengths for
// mapCount messages wherever they stand; both with something to spare for one more chunk.
const (
	mapWidth = 20_000
	mapCount = 500
)

// mapped says how full the metadata may become by what was met.
func (t *tracker) mapped() float64 {
	top := t.passed
	if n := len(t.before); n > 0 {
		top = max(top, t.before[n-1].to)
	}
	return min(float64(top-t.floor())/mapWidth, float64(len(t.list)+len(t.before))/mapCount)
}
