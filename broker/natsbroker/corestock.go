package natsbroker

import (
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// coreStock is what is here of what core NATS pushes. What does not fit is lost, and told as Gap: together, under a flood once a
// tenth of a second. It does no I/O. Safe for concurrent use.
type coreStock struct {
	events *kit.EventQueue
	claim  *broker.Claim

	mu     sync.Mutex
	flow   flow
	gate   kit.Gate // out, and held: ready
	slots  *slots
	ready  ring
	next   uint64
	waiter waiter
	lost   lossCount
}

// lossCount counts messages that nobody will handle. Not safe for concurrent use.
type lossCount struct {
	n       int64 // not yet told
	telling bool  // a timer will tell
}

// add counts some, and says whether to begin a timer.
func (l *lossCount) add(n int64) (begin bool) {
	l.n += n
	begin = l.n > 0 && !l.telling
	l.telling = l.telling || begin
	return begin
}

// take returns what is to be told.
func (l *lossCount) take() (n int64) {
	n, l.n, l.telling = l.n, 0, false
	return n
}

// arrived takes a message in, or counts it as lost.
func (c *coreStock) arrived(m *nats.Msg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := m.Size()
	_, room, ok := c.gate.FetchRoom()
	alone := c.gate.Out()+c.ready.n == 0
	if c.flow.stopped || !ok || !alone && int64(size) > room {
		if c.lost.add(1) {
			c.tellSoon()
		}
		return
	}
	c.next++
	i, sl := c.slots.add(c.next, 0)
	sl.msg, sl.size, sl.since = m, size, time.Now().UnixNano()
	c.gate.Hold(1, int64(size))
	c.ready.push(i)
	c.waiter.rouse()
}

func (c *coreStock) tellSoon() { time.AfterFunc(100*time.Millisecond, c.tellLost) }

func (c *coreStock) tellLost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.lost.take(); n > 0 {
		c.events.Say(broker.Event{Kind: broker.Gap, Claim: c.claim, N: n,
			Err: errors.New("natsbroker: a core subscription gets more than the budget takes; what does not fit is dropped")})
	}
}

// receive hands out. Where it returns nothing and no error, somebody waits for the bell.
func (c *coreStock) receive(dst []broker.Message) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.flow.err(); err != nil {
		return 0, err
	}
	room, _, ok := c.gate.Room()
	for ok && !c.flow.paused && n < min(len(dst), room) && c.ready.n > 0 {
		c.handOut(&dst[n], c.ready.pop())
		n++
	}
	c.waiter.waits = n == 0
	return n, nil
}

// settle frees budget. lost says that what is settled cannot come again.
func (c *coreStock) settle(tokens iter.Seq[uint64], lost bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var t kit.Tally
	for token := range tokens {
		i := c.slots.out(token)
		switch {
		case i == noSlot:
			t.Again++
			continue
		case lost || c.flow.closing:
			t.Lost++
		}
		c.gate.Free(1, int64(c.slots.all[i].size))
		c.slots.remove(i)
	}
	c.waiter.rouse()
	return t.Err()
}

// stop ends receiving. What was not handed out cannot go back: it is lost.
func (c *coreStock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flow.stopped {
		return
	}
	c.flow.stopped = true
	c.waiter.rouse()
	if c.lost.add(int64(c.ready.n)) {
		c.tellSoon()
	}
	for c.ready.n > 0 {
		i := c.ready.pop()
		c.gate.Hold(-1, -int64(c.slots.all[i].size))
		c.slots.remove(i)
	}
}

func (c *coreStock) pause(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flow.paused = on
	c.waiter.rouse()
}

func (c *coreStock) setBudget(b broker.Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate.SetBudget(b)
	c.waiter.rouse()
}

// wanted says whether messages are to come.
func (c *coreStock) wanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.flow.stopped && !c.flow.paused
}

// fence has settles say broker.ErrLost from now on.
func (c *coreStock) fence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flow.closing = true
}

// handOut makes the message of slot i, and counts it as out.
func (c *coreStock) handOut(m *broker.Message, i int32) {
	sl := &c.slots.all[i]
	msg := sl.msg
	sl.msg, sl.state = nil, slotOut
	c.gate.Hold(-1, -int64(sl.size))
	c.gate.HandOut(1, int64(sl.size))
	*m = broker.Message{
		Topic:     msg.Subject,
		Partition: -1,
		Offset:    -1,
		Value:     msg.Data,
		Headers:   headersOf(msg.Header),
		Key:       keyOf(msg.Header),
		Nanos:     sl.since, // core NATS keeps no time: when it was received
		Attempt:   1,
		Token:     c.slots.token(i),
		Claim:     c.claim,
	}
}
