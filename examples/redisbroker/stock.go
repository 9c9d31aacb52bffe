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
	wake, send kit.Bell // Receive's and the sender's

	mu      sync.Mutex
	gate    kit.Gate
	pauses  kit.Pauses
	ordered bool
	streams []*stream
	turn    int   // whose turn it is in Receive
	end     error // what Receive says; nil: it goes on
}

// A stream is one topic.
type stream struct {
	name    string
	claim   *claim // the newest; nil: none yet
	earlier int    // messages that are out under claims before it
	until   time.Time
	scanAt  time.Time // Receive's own
}

// A claim is the source's side of one; it is Claim.State. Its messages are known by their ids, which have the time in them.
type claim struct {
	*kit.Deliveries[string]
	stock  *stock
	of     *stream
	c      *broker.Claim
	keeper broker.Keeper
}

func newStock(c Config, events *kit.EventQueue) *stock {
	s := &stock{lease: c.Lease, events: events, wake: kit.NewBell(), send: kit.NewBell(), gate: kit.Gate{Eager: true}}
	for _, name := range c.Topics {
		s.streams = append(s.streams, &stream{name: name})
	}
	return s
}

// change changes what may be asked for.
func (s *stock) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.wake.Ring()
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
	st.claim = &claim{Deliveries: kit.NewDeliveries[string](s.lease, &s.gate), stock: s, of: st}
	st.claim.c, st.claim.keeper = broker.NewClaim(st.name, -1, st.claim)
	s.events.Say(broker.Event{Kind: broker.Assigned, Claim: st.claim.c})
}

// fence ends the claims of streams: settles say ErrLost from here on. The caller ends what is returned.
func (s *stock) fence(streams ...*stream) (ended []*claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range streams {
		if cl := st.claim; cl != nil && cl.Fence() {
			st.earlier += cl.Out()
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
	return cl != nil && !cl.Fenced() && !s.pauses.Has(st.name) && time.Now().After(st.until) && (!s.ordered || st.earlier == 0)
}

// arrived hands out what came to a claim, by what was asked for at a time. What is not to be handed out any more
// goes back; not where it stands behind what is out, by an order.
func (s *stock) arrived(cl *claim, ds []delivery, asked time.Time, dst []broker.Message) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		e, fresh := cl.Arrive(d.msg.Name, sizeOf(&d.msg), d.count, asked)
		if !fresh {
			continue
		}
		if !s.ordered && (s.end != nil || !s.open(cl.of)) {
			cl.Return(e)
			continue
		}
		if token, ok := cl.HandOut(e); ok {
			dst[n] = d.msg
			dst[n].Token, dst[n].Claim, dst[n].Attempt, dst[n].Runs = token, cl.c, max(1, e.Count), e.Runs
			n++
		}
	}
	s.send.Ring()
	return n
}

// ack settles messages as handled.
func (s *stock) ack(cl *claim, tokens []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.released(cl, cl.Out())
	return cl.Ack(tokens)
}

var errTrimmed = errors.New("redisbroker: given back, and trimmed by then")

// nack gives messages back.
func (s *stock) nack(cl *claim, backs []broker.Back) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.released(cl, cl.Out())
	gone, err := cl.Nack(backs)
	s.tell(cl, broker.Gap, gone, errTrimmed)
	return err
}

// lapsed says whether the lease of what is out has run out.
func (s *stock) lapsed(cl *claim, token uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cl.Lapsed(token)
}

// released is the end of each settle; before it so many were out. LOCKED
func (s *stock) released(cl *claim, before int) {
	if cl.Fenced() {
		cl.of.earlier -= before - cl.Out()
	}
	s.send.Ring()
	if wake, _ := s.gate.Feed(); wake || cl.Fenced() {
		s.wake.Ring()
	}
}

// tell says of n messages of a claim that they are gone, or not settled though that was said. LOCKED
func (s *stock) tell(cl *claim, what broker.Kind, n int64, why error) {
	if n > 0 {
		s.events.Say(broker.Event{Kind: what, Claim: cl.c, N: n, Err: why})
	}
}

// due lists what is to be extended of a stream.
func (s *stock) due(st *stream) []*kit.Delivery[string] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.claim == nil {
		return nil
	}
	return st.claim.Due()
}

// extended takes what extendScript said of each.
func (s *stock) extended(ds []*kit.Delivery[string], said []int64, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, d := range ds[:min(len(ds), len(said))] {
		switch said[i] {
		case 1:
			d.Lease.Renew(asked)
		case 2:
			d.Gone = true
		default:
			d.Lease.Lose(asked)
		}
	}
}

// mostAtOnce bounds how long the server is busy with what is sent at once.
const mostAtOnce = 500

var errLate = errors.New("redisbroker: the lease ran out before the settle was received")

// unsent takes settles of a claim; none: there are none.
func (s *stock) unsent() (cl *claim, settles []kit.Settle[string]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if cl = st.claim; cl == nil {
			continue
		}
		settles, late := cl.Unsent(mostAtOnce)
		if s.tell(cl, broker.Unconfirmed, late, errLate); len(settles) > 0 {
			return cl, settles
		}
	}
	return nil, nil
}

// sent takes note of settles: that they arrived, where trimmed is how many of the give-backs cannot come again; or that they did
// not.
func (s *stock) sent(cl *claim, settles []kit.Settle[string], trimmed int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		cl.Again(settles)
		return
	}
	s.tell(cl, broker.Unconfirmed, cl.Sent(settles), errLate)
	s.tell(cl, broker.Gap, trimmed, errTrimmed)
}

// abandon tells of settles that Close could not send, and forgets them.
func (s *stock) abandon(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if st.claim != nil {
			s.tell(st.claim, broker.Unconfirmed, st.claim.Abandon(), why)
		}
	}
}
