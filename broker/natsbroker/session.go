package natsbroker

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// A session is one claim on one consumer, from its creation until it is deleted, made anew, or the source is closed. Guarded by
// Source.mu.
type session struct {
	src     *Source
	claim   *broker.Claim
	keeper  broker.Keeper
	slots   *slots
	ready   ring // buffered slots, in the order of arrival
	at      position
	highest uint64   // stream sequence that was delivered here
	limbo   []string // replies of finished messages, until it is known whether the consumer is the same; see again
	suspect bool
	ended   bool

	out      int  // handed out and not settled
	unsorted bool // ready may not be in the stream's order
	assigned bool // the engine knows the claim
	pin      pin

	givenBack bool // by Close: naks are sent for all that is here
}

func newSession(src *Source, topic string, size int) *session {
	s := &session{src: src, slots: newSlots(size)}
	s.claim, s.keeper = broker.NewClaim(topic, -1, s)
	return s
}

// An inbox is the subscription to which pulls are answered. A new one is made when the old one's requests are void, so that what
// the server still sends to them is not taken for an answer to new ones.
type inbox struct {
	src     *Source
	ses     *session
	sub     *nats.Subscription
	prefix  string // requests carry prefix and a number as their reply subject
	retired bool   // guarded by Source.mu: it answers no request that counts
	owed    int    // the same: of a retired one, how many messages it had been asked for and had not brought
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

func (r *ring) pop() int32 {
	i := r.buf[r.head]
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return i
}

// apiSubject is that of a request about the consumer.
func (c Config) apiSubject(verb string) string {
	prefix := "$JS.API"
	if c.Domain != "" {
		prefix = "$JS." + c.Domain + ".API"
	}
	return fmt.Sprintf("%s.CONSUMER.%s.%s.%s", prefix, verb, c.Stream, c.Consumer)
}
