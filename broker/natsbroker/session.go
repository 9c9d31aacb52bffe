package natsbroker

import (
	"cmp"
	"slices"

	"github.com/longshoremq/longshore/broker"
)

// A session is one claim on one consumer, from its creation until it is deleted, made anew, or the source is closed. Not safe for
// concurrent use, but for claim and keeper.
type session struct {
	of      *holdings // tells foreign claims
	claim   *broker.Claim
	keeper  broker.Keeper
	slots   *slots
	ready   ring // buffered slots, in the order of arrival
	at      position
	highest uint64   // stream sequence that was delivered here
	limbo   []string // replies of finished messages, until it is known whether the consumer is the same; see again
	suspect bool
	back    bool // deliveries to one inbox counted backwards; see stock.recount
	ended   bool

	out      int  // handed out and not settled
	unsorted bool // ready may not be in the stream's order
	assigned bool // the engine knows the claim
	pin      pin

	givenBack bool // by Close: naks are sent for all that is here
	gone      bool // its consumer is: what is said of a message would be about another one
}

func newSession(of *holdings, topic string, size int) *session {
	s := &session{of: of, slots: newSlots(size)}
	s.claim, s.keeper = broker.NewClaim(topic, -1, s)
	return s
}

// next is the session after one that lost its pin, on the same consumer. It stands by.
func (s *session) next(size int) *session {
	n := newSession(s.of, s.claim.Topic, size)
	n.at, n.highest = s.at, s.highest
	n.pin.group, n.pin.ttl = s.pin.group, s.pin.ttl
	return n
}

// sort brings what is buffered into the order of the stream.
func (s *session) sort() {
	if !s.unsorted {
		return
	}
	all := make([]int32, 0, s.ready.n)
	for s.ready.n > 0 {
		all = append(all, s.ready.pop())
	}
	slices.SortFunc(all, func(a, b int32) int { return cmp.Compare(s.slots.all[a].seq, s.slots.all[b].seq) })
	for _, i := range all {
		s.ready.push(i)
	}
	s.unsorted = false
}

// handOut makes the message of slot i, which is of a log.
func (s *session) handOut(m *broker.Message, i int32, log string, cfg *Config) {
	sl := &s.slots.all[i]
	msg := sl.msg
	sl.state = slotOut
	s.out++
	*m = broker.Message{
		Topic:     msg.Subject,
		Partition: -1,
		Offset:    int64(sl.seq),
		Name:      log,
		Value:     msg.Data,
		Nanos:     sl.nanos,
		Attempt:   int32(min(sl.newest, 1<<31-1)),
		Runs:      sl.runs,
		Token:     s.slots.token(i),
		Claim:     s.claim,
	}
	if len(msg.Header) > 0 {
		m.Headers = headersOf(msg.Header)
	}
	if len(msg.Header) > 0 || cfg.KeyToken != 0 {
		m.Key = cfg.key(msg)
	}
}

// takeLimbo returns the replies of finished messages: it is known now that the consumer is the same.
func (s *session) takeLimbo() []string {
	replies := s.limbo
	s.limbo, s.suspect = nil, false
	return replies
}

// ring is a queue of slot indices that reuses its space.
type ring struct {
	buf  []int32
	head int
	n    int
}

func (r *ring) push(i int32) {
	if r.n == len(r.buf) {
		bigger := make([]int32, max(64, 2*len(r.buf)))
		for k := range r.n {
			bigger[k] = r.buf[(r.head+k)&(len(r.buf)-1)]
		}
		r.buf, r.head = bigger, 0
	}
	r.buf[(r.head+r.n)&(len(r.buf)-1)] = i
	r.n++
}

func (r *ring) first() int32 { return r.buf[r.head] }

func (r *ring) pop() int32 {
	i := r.first()
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return i
}
