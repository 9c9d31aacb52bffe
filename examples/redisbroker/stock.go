package redisbroker

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A stock is all that a source has, and decides about it: what may be asked for, what a settle comes to, what is to be sent. It
// does no I/O and waits for nothing. A method says LOCKED where its caller has the lock; each other one takes it.
type stock struct {
	lease      time.Duration
	events     *kit.EventQueue
	wake, send bell // Receive's and the sender's

	mu      sync.Mutex
	gate    kit.Gate
	pauses  kit.Pauses
	ordered bool
	streams []*stream
	turn    int   // whose turn it is in Receive
	end     error // what Receive says; nil: it goes on
	tokens  uint64
}

// A stream is one topic.
type stream struct {
	name     string
	claim    *claim // the newest; nil: none yet
	earlier  int    // messages that are out under claims before it
	until    time.Time
	finished *kit.Recent[string, struct{}] // by id, which has the time in it
	runs     *kit.Recent[string, int32]    // of what was given back
	scanAt   time.Time                     // Receive's own
}

// A claim is the source's side of one; it is Claim.State.
type claim struct {
	stock   *stock
	of      *stream
	c       *broker.Claim
	keeper  broker.Keeper
	over    bool              // fenced
	here    map[string]*entry // by id: all that the broker has as ours, and we know of
	out     map[uint64]*entry // by token
	settled []*entry          // to be sent
}

// An entry is one message that is here: out, or settled and not sent yet.
type entry struct {
	id       string
	size     int64
	count    int32 // deliveries, up to the newest
	runs     int32
	back     int32 // how it is settled: the count to go on from when it is given back, or isAck
	lease    kit.LeaseClock
	settled  bool
	trimmed  bool // it cannot come again
	promised bool // a settle said nil
}

const isAck = -1

// late says whether somebody else may have it.
func (e *entry) late() bool { return !e.trimmed && e.lease.Over(time.Now()) }

// A bell rings for one who waits. It does not count.
type bell chan struct{}

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

func newStock(c Config, events *kit.EventQueue) *stock {
	s := &stock{lease: c.Lease, events: events, wake: make(bell, 1), send: make(bell, 1), gate: kit.Gate{Eager: true}}
	for _, name := range c.Topics {
		s.streams = append(s.streams, &stream{
			name: name, finished: kit.NewRecent[string, struct{}](kit.Finished), runs: kit.NewRecent[string, int32](kit.Finished),
		})
	}
	return s
}

// change changes what may be asked for.
func (s *stock) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.wake.ring()
}

// stop lets Receive say why it hands out nothing any more; the first reason holds.
func (s *stock) stop(why error) {
	s.change(func() {
		if s.end == nil {
			s.end = fmt.Errorf("redisbroker: receiving: %w", why)
		}
	})
}

// begin makes a stream's next claim, and says that it is assigned; none after Stop. What is remembered of an earlier one is not
// of the stream as it is now.
func (s *stock) begin(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return
	}
	st.finished.Clear()
	st.runs.Clear()
	st.claim = &claim{stock: s, of: st, here: make(map[string]*entry), out: make(map[uint64]*entry)}
	st.claim.c, st.claim.keeper = broker.NewClaim(st.name, -1, st.claim)
	s.events.Say(broker.Event{Kind: broker.Assigned, Claim: st.claim.c})
}

// fence ends the claims of streams: settles say ErrLost from here on. What is out keeps its budget until it is settled. The
// caller ends what is returned.
func (s *stock) fence(streams ...*stream) (ended []*claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range streams {
		if cl := st.claim; cl != nil && !cl.over {
			cl.over = true
			st.earlier += len(cl.out)
			ended = append(ended, cl)
		}
	}
	return ended
}

// next is the stream to ask for messages of, in turn, up to a number; nil: Receive waits. After Stop it is an error.
func (s *stock) next(n int) (st *stream, messages int, bytes int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	messages, bytes, ok := s.gate.Room()
	for range s.streams {
		s.turn = (s.turn + 1) % len(s.streams)
		if st = s.streams[s.turn]; s.end == nil && ok && s.open(st) {
			return st, min(n, messages), bytes, nil
		}
	}
	return nil, 0, 0, s.end
}

// open says whether a stream's messages may be handed out. LOCKED
func (s *stock) open(st *stream) bool {
	cl := st.claim
	return cl != nil && !cl.over && !s.pauses.Has(st.name) && time.Now().After(st.until) && (!s.ordered || st.earlier == 0)
}

// arrived hands out what came to a claim, by what was asked for at a time. What is not to be handed out any more
// goes back; not where it stands behind what is out, by an order.
func (s *stock) arrived(cl *claim, ds []delivery, asked time.Time, dst []broker.Message) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		e, fresh := s.enter(cl, &d, asked)
		if !fresh {
			continue
		}
		if e.late() || cl.over || !s.ordered && (s.end != nil || !s.open(cl.of)) {
			cl.settle(e, e.count-1)
			continue
		}
		s.tokens++
		cl.out[s.tokens] = e
		s.gate.HandOut(1, e.size)
		dst[n] = d.msg
		dst[n].Token, dst[n].Claim, dst[n].Attempt, dst[n].Runs = s.tokens, cl.c, max(1, e.count), e.runs
		n++
	}
	s.send.ring()
	return n
}

// enter takes a delivery. It is not fresh where the message is here already: then its lease counts anew; nor where it is
// finished: then it is acked again. What was given back, and came again before that was sent, is another delivery; the script
// that gives back knows it by its count. LOCKED
func (s *stock) enter(cl *claim, d *delivery, asked time.Time) (e *entry, fresh bool) {
	id := d.msg.ID
	if e = cl.here[id]; e != nil && (!e.settled || e.back == isAck) {
		e.lease.Renew(asked)
		e.count, e.trimmed = d.count, false
		return e, false
	}
	e = &entry{id: id, size: sizeOf(&d.msg), count: d.count, lease: kit.NewLeaseClock(asked, s.lease)}
	cl.here[id] = e
	e.runs, _ = cl.of.runs.Get(id)
	_, done := cl.of.finished.Get(id)
	if done {
		cl.settle(e, isAck)
	}
	return e, !done
}

// settle queues an entry to be sent. LOCKED
func (cl *claim) settle(e *entry, back int32) {
	e.settled, e.back = true, back
	cl.settled = append(cl.settled, e)
}

// drop forgets an entry, unless another one has its place. LOCKED
func (cl *claim) drop(e *entry) {
	if cl.here[e.id] == e {
		delete(cl.here, e.id)
	}
}

// ack settles messages as handled. One whose lease has run out is sent all the same: it spares the next holder the work.
func (s *stock) ack(cl *claim, tokens []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var t kit.Tally
	for _, token := range tokens {
		if e := s.release(cl, token, &t); e != nil {
			cl.settle(e, isAck)
		}
	}
	s.released(cl)
	return t.Err()
}

var errTrimmed = errors.New("redisbroker: given back, and trimmed by then")

// nack gives messages back. One whose lease has run out is not said: it would take it from whoever has it.
func (s *stock) nack(cl *claim, backs []broker.Back) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var t kit.Tally
	for _, b := range backs {
		e := s.release(cl, b.Token, &t)
		if e == nil {
			continue
		}
		cl.of.runs.Put(e.id, max(b.Runs, e.runs))
		switch {
		case !e.promised:
			cl.drop(e)
		case e.trimmed:
			cl.drop(e)
			s.events.Say(broker.Event{Kind: broker.Gap, Claim: cl.c, N: 1, Err: errTrimmed})
		case b.Runs > e.runs:
			cl.settle(e, e.count)
		default: // nobody ran it
			cl.settle(e, e.count-1)
		}
	}
	s.released(cl)
	return t.Err()
}

// release takes a message off what is out, frees its budget and counts what becomes of it. nil: nothing more is done. LOCKED
func (s *stock) release(cl *claim, token uint64, t *kit.Tally) *entry {
	e := cl.out[token]
	if e != nil {
		delete(cl.out, token)
		s.gate.Free(1, e.size)
	}
	switch {
	case cl.over:
		t.Lost++
		if e != nil {
			cl.of.earlier--
		}
		return nil
	case e == nil:
		t.Again++
	case e.late():
		t.Lost++
	default:
		t.Held++
		e.promised = true
	}
	return e
}

// released is the end of each settle. LOCKED
func (s *stock) released(cl *claim) {
	s.send.ring()
	if wake, _ := s.gate.Feed(); wake || cl.over {
		s.wake.ring()
	}
}

// due lists what is to be extended of a stream.
func (s *stock) due(st *stream) (es []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.claim == nil {
		return nil
	}
	for _, e := range st.claim.here {
		if !e.trimmed && e.lease.Due(time.Now()) {
			es = append(es, e)
		}
	}
	return es
}

// extended takes what extendScript said of each.
func (s *stock) extended(es []*entry, said []int64, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range es[:min(len(es), len(said))] {
		switch said[i] {
		case 1:
			e.lease.Renew(asked)
		case 2:
			e.trimmed = true
		default:
			e.lease.Lose(asked)
		}
	}
}

// parcelSize bounds how long the server is busy with what is sent at once.
const parcelSize = 500

var errLate = errors.New("redisbroker: the lease ran out before the settle was received")

// parcel takes settles of a claim, in their order, and what settleScript is to be told of them; none: there are none. A give-back
// that is late is not said any more. A message that is acked may come again meanwhile, so entries are read here.
func (s *stock) parcel() (cl *claim, es []*entry, args []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		for cl = st.claim; cl != nil && len(cl.settled) > 0 && len(es) < parcelSize; cl.settled = cl.settled[1:] {
			if e := cl.settled[0]; e.back == isAck || !e.late() {
				es, args = append(es, e), append(args, e.id, e.count, e.back)
			} else {
				cl.drop(e)
				s.unconfirmed(cl, errLate, e)
			}
		}
		if len(es) > 0 {
			break
		}
	}
	return cl, es, args
}

// unconfirmed tells of settles that said nil and did not hold. LOCKED
func (s *stock) unconfirmed(cl *claim, why error, es ...*entry) {
	n := int64(0)
	for _, e := range es {
		if e.promised {
			n++
		}
	}
	if n > 0 {
		s.events.Say(broker.Event{Kind: broker.Unconfirmed, Claim: cl.c, N: n, Err: why})
	}
}

// sent takes note of a parcel: that it arrived, where trimmed is how many of its give-backs cannot come again; or that it did
// not.
func (s *stock) sent(cl *claim, es []*entry, trimmed int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		cl.settled = append(es, cl.settled...)
		return
	}
	var late []*entry
	for _, e := range es {
		if cl.drop(e); e.late() {
			late = append(late, e)
		}
		if e.back == isAck {
			cl.of.finished.Put(e.id, struct{}{})
		}
	}
	s.unconfirmed(cl, errLate, late...)
	if trimmed > 0 {
		s.events.Say(broker.Event{Kind: broker.Gap, Claim: cl.c, N: trimmed, Err: errTrimmed})
	}
}

// abandon tells of settles that Close could not send, and forgets them.
func (s *stock) abandon(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if st.claim != nil {
			s.unconfirmed(st.claim, why, st.claim.settled...)
			st.claim.settled = nil
		}
	}
}
