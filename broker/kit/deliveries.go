package kit

import (
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Deliveries are the messages of one claim, on a broker that leases each of them: what is handed out, and what is settled and not
// sent yet. They keep the rules of package broker about redeliveries, leases and settles, and decide; the adapter asks and sends.
// ID names a message for good: a message of a stream that was made anew has another one, or is of another claim.
//
//	pulled:   Arrive: fresh? → HandOut, or Return where it may not be handed out now
//	settled:  Ack, Nack
//	to send:  Unsent → Sent, Refused where we do not have them any more, or Again where that failed
//	beside:   Due → extend; then Lease.Renew, Lease.Lose or Gone of each, or LoseAll. Lapsed tells the engine
//	the end:  Fence, send what is left, Abandon what could not be
//
// One goroutine sends at a time, at the end too: what another has from Unsent, and has had no answer of, is not among what is
// left, so an end that does not wait for it neither sends it nor has it told as broker.Unconfirmed.
//
// They remember the last finished messages and the runs of those given back, as many as Finished says. What is handed out they
// count by the Gate. They are for brokers that keep no delay (Traits.NativeDelay 0): Back.Delay is the engine's then; an adapter
// of another one keeps beside them until when each is delayed, and Returns what arrives before that. They read the clock, and are
// not safe for concurrent use: they stand under the adapter's lock. A give-back may be sent twice (Again), so let the broker take
// it only from who has the message, by Settle.Count where it can.
type Deliveries[ID comparable] struct {
	lease    time.Duration
	gate     *Gate
	here     map[ID]*Delivery[ID] // all that the broker has as ours, and we know of
	out      map[uint64]*Delivery[ID]
	token    uint64
	unsent   []*Delivery[ID] // in the order of their settles
	finished *Recent[ID, struct{}]
	runs     *Recent[ID, int32]
	fenced   bool
}

// A Delivery is a message that is here.
type Delivery[ID comparable] struct {
	ID ID
	// Lease tells how long it is certainly here.
	Lease LeaseClock
	// Count is how often the broker has delivered it, up to the newest delivery.
	Count int32
	// Runs is how often handlers here had it, where that is remembered.
	Runs int32
	// Gone says that the broker has dropped it: nobody else can have it, and it comes again no more.
	Gone bool

	size     int64
	fate     settled
	promised bool // its settle said nil
}

// settled is how a delivery was settled.
type settled int

const (
	notYet settled = iota
	acked
	backRun   // given back, and a handler had it
	backUnrun // given back, and no handler had it
)

// late says whether somebody else may have it.
func (d *Delivery[ID]) late() bool { return !d.Gone && d.Lease.Over(time.Now()) }

// A Settle is what the broker is to be told of a message.
type Settle[ID comparable] struct {
	ID ID
	// Count is that of the delivery which is settled: one that came after it is not given back by this.
	Count int32
	// Acked: it is finished. Otherwise it is given back.
	Acked bool
	// Ran says of what is given back that a handler had it, so that this delivery counts.
	Ran bool

	of *Delivery[ID]
}

// NewDeliveries makes those of a claim; lease is the broker's.
func NewDeliveries[ID comparable](lease time.Duration, gate *Gate) *Deliveries[ID] {
	return &Deliveries[ID]{
		lease: lease, gate: gate, here: make(map[ID]*Delivery[ID]), out: make(map[uint64]*Delivery[ID]),
		finished: NewRecent[ID, struct{}](Finished), runs: NewRecent[ID, int32](Finished),
	}
}

// Arrive takes a message that came in the answer to what was asked at a time. It is not fresh where it is here already: then its
// lease counts anew; nor where it is finished: then it is acked again. A fresh one is handed out or returned next. One that was
// given back, and comes again before that was sent or heard of, is fresh, and the give-back is void: see Unsent.
func (ds *Deliveries[ID]) Arrive(id ID, size int64, count int32, asked time.Time) (d *Delivery[ID], fresh bool) {
	if d = ds.here[id]; d != nil && (d.fate == notYet || d.fate == acked) {
		d.Lease.Renew(asked)
		d.Count, d.Gone = count, false
		return d, false
	}
	d = &Delivery[ID]{ID: id, Lease: NewLeaseClock(asked, ds.lease), Count: count, size: size}
	d.Runs, _ = ds.runs.Get(id)
	ds.here[id] = d
	_, done := ds.finished.Get(id)
	if done {
		ds.settle(d, acked)
	}
	return d, !done
}

// HandOut counts a fresh one as out, and returns its token. ok is false where its lease is over, or the claim: then HandOut has
// called Return, and nothing more is to be done.
func (ds *Deliveries[ID]) HandOut(d *Delivery[ID]) (token uint64, ok bool) {
	if ds.fenced || d.late() {
		ds.Return(d)
		return 0, false
	}
	ds.token++
	ds.out[ds.token] = d
	ds.gate.HandOut(1, d.size)
	return ds.token, true
}

// Return gives back a fresh one that is not handed out. Another Return of it changes nothing: a give-back is sent once.
func (ds *Deliveries[ID]) Return(d *Delivery[ID]) {
	if d.fate == notYet {
		ds.settle(d, backUnrun)
	}
}

func (ds *Deliveries[ID]) settle(d *Delivery[ID], how settled) {
	d.fate = how
	ds.unsent = append(ds.unsent, d)
}

// drop forgets a delivery, unless a newer one has its place.
func (ds *Deliveries[ID]) drop(d *Delivery[ID]) {
	if ds.here[d.ID] == d {
		delete(ds.here, d.ID)
	}
}

// Ack settles messages as handled, frees their budget, and returns the error for broker.Source.Ack. One whose lease has run out
// is sent all the same: it spares the next holder the work. Call Gate.Feed after it.
func (ds *Deliveries[ID]) Ack(tokens []uint64) error {
	var t Tally
	for _, token := range tokens {
		if d := ds.release(token, &t); d != nil {
			ds.settle(d, acked)
		}
	}
	return t.Err()
}

// Nack gives messages back, and returns the error for broker.Source.Nack. One whose lease has run out is not sent: it would take
// it from whoever has it. gone is how many of the others the broker has dropped: they come again no more. Call Gate.Feed after
// it.
func (ds *Deliveries[ID]) Nack(backs []broker.Back) (gone int64, err error) {
	var t Tally
	for _, b := range backs {
		d := ds.release(b.Token, &t)
		if d == nil {
			continue
		}
		how := backUnrun
		if b.Runs > d.Runs {
			how = backRun
		}
		ds.runs.Put(d.ID, max(b.Runs, d.Runs))
		switch {
		case !d.promised:
			ds.drop(d)
		case d.Gone:
			ds.drop(d)
			gone++
		default:
			ds.settle(d, how)
		}
	}
	return gone, t.Err()
}

// release takes a message off what is out, frees its budget and counts what becomes of it. nil: nothing more is done.
func (ds *Deliveries[ID]) release(token uint64, t *Tally) *Delivery[ID] {
	d := ds.out[token]
	if d != nil {
		delete(ds.out, token)
		ds.gate.Free(1, d.size)
	}
	switch {
	case ds.fenced:
		t.Lost++
		return nil
	case d == nil:
		t.Again++
	case d.late():
		t.Lost++
	default:
		t.Held++
		d.promised = true
	}
	return d
}

// Lapsed says whether the lease of what was handed out with the token has run out, for broker.LeaseReporter: false where it is
// not out, and where the broker has dropped it, so that nobody else can have it.
func (ds *Deliveries[ID]) Lapsed(token uint64) bool {
	d := ds.out[token]
	return d != nil && d.late()
}

// Out is how many are handed out and not settled.
func (ds *Deliveries[ID]) Out() int { return len(ds.out) }

// Fence ends the claim: settles say ErrLost from here on, and what arrives is returned. What is out keeps its budget until it is
// settled. What was settled before can still be sent. It says whether it was not fenced before.
func (ds *Deliveries[ID]) Fence() bool {
	first := !ds.fenced
	ds.fenced = true
	return first
}

// Fenced says whether the claim is over.
func (ds *Deliveries[ID]) Fenced() bool { return ds.fenced }

// Due lists what is to be extended: all that is here, whose lease has come to that and is not over. An ID does not change; all
// else of a Delivery is read and written under the adapter's lock.
func (ds *Deliveries[ID]) Due() (due []*Delivery[ID]) {
	now := time.Now()
	for _, d := range ds.here {
		if !d.Gone && d.Lease.Due(now) {
			due = append(due, d)
		}
	}
	return due
}

// Unsent takes up to n settles, the oldest first; the adapter sends them, in this order, and then calls Sent or Again. A
// give-back that is late by now is not sent any more. unconfirmed is how many of those had said nil: tell broker.Unconfirmed.
//
// Nor is one whose message has come again since. The sequence: the broker takes a give-back, and its answer gets lost; the
// message comes again, and runs here; the give-back is sent once more, and takes it from here. Where no handler had it the first
// time, it may have the same count as then, so that the broker cannot tell.
func (ds *Deliveries[ID]) Unsent(n int) (settles []Settle[ID], unconfirmed int64) {
	for len(ds.unsent) > 0 && len(settles) < n {
		d := ds.unsent[0]
		ds.unsent = ds.unsent[1:]
		if d.fate != acked && ds.here[d.ID] != d {
			continue
		}
		if d.fate != acked && d.late() {
			ds.drop(d)
			unconfirmed += d.broken()
			continue
		}
		settles = append(settles, Settle[ID]{ID: d.ID, Count: d.Count, Acked: d.fate == acked, Ran: d.fate == backRun, of: d})
	}
	return settles, unconfirmed
}

// Again takes back settles that could not be sent, or of which that is not known.
func (ds *Deliveries[ID]) Again(settles []Settle[ID]) {
	again := make([]*Delivery[ID], 0, len(settles)+len(ds.unsent))
	for _, s := range settles {
		again = append(again, s.of)
	}
	ds.unsent = append(again, ds.unsent...)
}

// Sent takes note that the broker has taken settles. unconfirmed is how many had said nil and may have come too late.
func (ds *Deliveries[ID]) Sent(settles []Settle[ID]) (unconfirmed int64) {
	for _, s := range settles {
		ds.drop(s.of)
		if s.of.late() {
			unconfirmed += s.of.broken()
		}
		if s.Acked {
			ds.finished.Put(s.ID, struct{}{})
		}
	}
	return unconfirmed
}

// Refused takes note that the broker has not taken settles, and never will: as it says, we do not have the messages. unconfirmed
// is how many had said nil. What was acked is remembered as finished, as by Sent, so it is acked again where it comes here.
func (ds *Deliveries[ID]) Refused(settles []Settle[ID]) (unconfirmed int64) {
	for _, s := range settles {
		s.of.Lease.Lose(time.Now())
	}
	return ds.Sent(settles)
}

// LoseAll takes note that all that is here may be somebody else's from now on: of a broker that gives a message to a connection,
// which has ended. Acks are sent still, for what has come again by then. Return what is prefetched: what comes again of it is
// fresh only then.
func (ds *Deliveries[ID]) LoseAll() {
	now := time.Now()
	for _, d := range ds.here {
		d.Lease.Lose(now)
	}
}

// Abandon forgets what was never sent. unconfirmed is how many of that had said nil.
func (ds *Deliveries[ID]) Abandon() (unconfirmed int64) {
	for _, d := range ds.unsent {
		unconfirmed += d.broken()
	}
	ds.unsent = nil
	return unconfirmed
}

// broken is 1 where its settle said nil.
func (d *Delivery[ID]) broken() int64 {
	if d.promised {
		return 1
	}
	return 0
}
