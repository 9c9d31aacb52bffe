package natsbroker

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

var (
	bodyAck = []byte("+ACK")
	bodyNak = []byte("-NAK")
)

// outbox is what has yet to be said to the server: settles wait here, and a writer sends them. So Ack and Nack never wait for a
// socket whose other end does not read; and while there is no connection they stay here, where a nak can still be looked at.
//
// What was written is not yet received: it may lie in a buffer of a connection that dies, or come to a server that has no
// consumer any more (receipt.go). So acks are kept until the consumer has answered one that was sent after them, and sent again
// otherwise. Sending an ack twice is harmless; a nak is never sent again, since by then it may take the message from somebody
// else.
type outbox struct {
	link     *link
	clock    func() int64
	receipts receipts
	// dropped is told how many naks were not sent because their lease had run out, late how many acks may have come after theirs.
	dropped, late func(n int)

	mu       sync.Mutex
	acks     []promise
	naks     []nak
	wake     chan struct{}
	writing  bool
	unproven []written // by seq
	count    int       // acks in unproven
	seq      uint64
	spare    [][]promise
	asked    int64 // when a receipt was last asked for, by the source's clock
	hurry    bool  // ask for one now
	// server is the id of the last one that was written to; restarted is when it was last found to be another, by the source's
	// clock.
	server    string
	restarted int64
}

// A promise is an ack that is to arrive before the lease runs out, by the source's clock; after that another process may get the
// message.
type promise struct {
	reply string
	until int64
}

// noPromise is the time of an ack that was promised to nobody: a repeated one, or one of which ErrLost was said.
const noPromise = 1<<63 - 1

type nak struct {
	reply string
	delay time.Duration
	until int64 // when the lease runs out, by the source's clock
	said  bool  // a Nack said nil to it; else the adapter gives back by itself
}

// written is acks that were handed to a connection, with receipts for the first and the last.
type written struct {
	seq     uint64
	over    trip
	acks    []promise
	asked   int64 // when the last receipt was asked for, by the source's clock; notAsked: more acks may join
	begun   bool  // the first receipt came
	refused bool  // the server has no such consumer at the moment
}

// A trip is one connection to one server, from its handshake to its end. The server's id changes when it is started again.
type trip struct {
	conn   *nats.Conn
	nth    uint64
	server string
}

func tripOf(nc *nats.Conn) trip {
	if nc == nil {
		return trip{}
	}
	return trip{nc, nc.Stats().Reconnects, nc.ConnectedServerId()}
}

// restartLoss is how much sooner leases may run out after the server was started again: it stores when they began in whole
// seconds, rounded down (EncodeConsumerState of nats-server).
const restartLoss = int64(time.Second)

// maxUnproven bounds the acks kept to be sent again. The oldest are let go first, and told as late; one that was lost comes
// again, and is acked then (see finished).
const maxUnproven = 1 << 16

func newOutbox(l *link, clock func() int64, dropped, late func(int)) *outbox {
	return &outbox{link: l, clock: clock, dropped: dropped, late: late, wake: make(chan struct{}, 1)}
}

func (o *outbox) rouse() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// promise is the ack of a message whose lease began or was last extended at lease and holds for ackWait. The caller holds o.mu.
func (o *outbox) promise(reply string, lease, ackWait int64) promise {
	p := promise{reply, lease + ackWait}
	if lease < o.restarted {
		p.until -= restartLoss
	}
	return p
}

// meet looks which server a connection leads to. After a restart, what was promised before may hold for less long. The caller
// holds o.mu.
func (o *outbox) meet(server string) {
	if server == "" || server == o.server {
		return
	}
	if o.server != "" {
		o.restarted = o.clock()
		shorten(o.acks)
		for _, w := range o.unproven {
			shorten(w.acks)
		}
	}
	o.server = server
}

func shorten(ps []promise) {
	for i := range ps {
		if ps[i].until != noPromise {
			ps[i].until -= restartLoss
		}
	}
}

// ack queues an ack that was promised to nobody.
func (o *outbox) ack(reply string) {
	o.mu.Lock()
	o.acks = append(o.acks, promise{reply, noPromise})
	o.mu.Unlock()
	o.rouse()
}

func (o *outbox) nak(reply string, delay time.Duration, until int64) {
	o.mu.Lock()
	o.naks = append(o.naks, nak{reply: reply, delay: delay, until: until})
	o.mu.Unlock()
	o.rouse()
}

// run writes until ctx ends.
func (o *outbox) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		for o.link.connected() && o.write() {
		}
	}
}

// write sends what is there and says whether there was anything.
func (o *outbox) write() bool {
	nc := o.link.conn()
	over := tripOf(nc)
	listening := o.receipts.listen(nc, o.answered)
	o.mu.Lock()
	o.meet(over.server)
	acks, naks := o.acks, o.naks
	o.acks, o.naks = o.takeSpare(), nil
	acks, first, last := o.enter(acks, over, listening)
	o.writing = len(acks)+len(naks) > 0
	o.mu.Unlock()
	if len(acks)+len(naks) == 0 {
		o.done(acks, nil)
		return false
	}
	a := 0
	for ; a < len(acks); a++ {
		receipt := ""
		switch {
		case a == len(acks)-1 && last != "":
			receipt = last
		case a == 0:
			receipt = first
		}
		if publishAck(nc, acks[a].reply, receipt) != nil {
			break // all of them go over the next connection
		}
	}
	n := 0
	if a == len(acks) {
		n = o.writeNaks(nc, naks)
	}
	wrote := a == len(acks) && n == len(naks)
	o.done(acks, naks[n:])
	return wrote
}

func publishAck(nc *nats.Conn, reply, receipt string) error {
	if receipt == "" {
		return nc.Publish(reply, bodyAck)
	}
	return nc.PublishRequest(reply, receipt, bodyAck)
}

// enter books acks that are about to be written, and says where the receipts of the first and of the last are to go; empty: they
// have none. When it is time for a receipt and there is no ack to ask with, the last one is sent again. The caller holds o.mu.
func (o *outbox) enter(acks []promise, over trip, listening bool) (send []promise, first, last string) {
	var g *written
	if n := len(o.unproven); n > 0 && o.unproven[n-1].asked == notAsked && o.unproven[n-1].over == over {
		g = &o.unproven[n-1]
	}
	now := o.clock()
	ask := listening && (o.hurry || (len(acks) > 0 && now-o.asked >= askEvery))
	if len(acks) > 0 {
		if g == nil {
			o.seq++
			o.unproven = append(o.unproven, written{seq: o.seq, over: over, acks: o.takeSpare(), asked: notAsked})
			g = &o.unproven[len(o.unproven)-1]
			if g.begun = ask && len(acks) == 1; !g.begun && listening {
				first = o.receipts.first(g.seq)
			}
		}
		g.acks = append(g.acks, acks...)
		o.count += len(acks)
	}
	if g == nil || !ask {
		return acks, first, ""
	}
	if len(acks) == 0 {
		acks = append(acks, g.acks[len(g.acks)-1])
	}
	o.hurry, o.asked, g.asked = false, now, now
	return acks, first, o.receipts.last(g.seq)
}

func (o *outbox) writeNaks(nc *nats.Conn, naks []nak) (n int) {
	late := 0
	now := o.clock()
	for ; n < len(naks); n++ {
		k := naks[n]
		if now >= k.until {
			late++
			continue
		}
		body := bodyNak
		if k.delay > 0 {
			body = nakBody(k.delay)
		}
		if nc.Publish(k.reply, body) != nil {
			break
		}
	}
	if late > 0 {
		o.dropped(late)
	}
	return n
}

func nakBody(delay time.Duration) []byte {
	b := append(make([]byte, 0, 40), `-NAK {"delay": `...)
	return append(strconv.AppendInt(b, int64(delay), 10), '}')
}

// done ends a write: of the naks, some could not be sent.
func (o *outbox) done(acks []promise, naks []nak) {
	o.mu.Lock()
	o.writing = false
	if len(naks) > 0 {
		o.naks = append(append([]nak(nil), naks...), o.naks...)
	}
	o.giveSpare(acks)
	late := 0
	for o.count > maxUnproven && len(o.unproven) > 1 {
		late += overdue(o.unproven[0].acks, noPromise)
		o.forget(0)
	}
	o.mu.Unlock()
	o.tellLate(late)
}

// forget lets go of what was written as number i. The caller holds o.mu.
func (o *outbox) forget(i int) {
	w := o.unproven[i]
	o.count -= len(w.acks)
	o.giveSpare(w.acks)
	if i > 0 {
		o.unproven = slices.Delete(o.unproven, i, i+1)
		return
	}
	o.unproven[0] = written{}
	o.unproven = o.unproven[1:]
}

// overdue counts what was promised for a time before now, and takes the promise as told.
func overdue(ps []promise, now int64) (n int) {
	for i := range ps {
		if ps[i].until < now {
			ps[i].until = noPromise
			n++
		}
	}
	return n
}

func (o *outbox) tellLate(n int) {
	if n > 0 {
		o.late(n)
	}
}

func (o *outbox) takeSpare() []promise {
	if n := len(o.spare); n > 0 {
		s := o.spare[n-1]
		o.spare = o.spare[:n-1]
		return s
	}
	return nil
}

func (o *outbox) giveSpare(s []promise) {
	if cap(s) > 0 && len(o.spare) < 16 {
		clear(s)
		o.spare = append(o.spare, s[:0])
	}
}

// again queues the acks that went into another connection than the present one.
func (o *outbox) again(now trip) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.meet(now.server)
	for len(o.unproven) > 0 && o.unproven[0].over != now {
		o.acks = append(o.acks, o.unproven[0].acks...)
		o.forget(0)
	}
	o.rouse()
}

// pending is how many settles are not yet written.
func (o *outbox) pending() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.acks) + len(o.naks)
	if o.writing {
		n++
	}
	return n
}

// left is how many settles the server has not certainly received. refused: the consumer of some is not there at the moment.
func (o *outbox) left() (n int, refused bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.unproven {
		refused = refused || w.refused
	}
	return len(o.acks) + len(o.naks) + o.count, refused
}

// letGo sends nothing again of what was written: the consumer is no more, and to one made anew under its name these acks would be
// about other messages. What was not written yet may be about its messages, which came before that was known.
func (o *outbox) letGo() {
	o.mu.Lock()
	late := 0
	for len(o.unproven) > 0 {
		late += overdue(o.unproven[0].acks, noPromise)
		o.forget(0)
	}
	o.mu.Unlock()
	o.tellLate(late)
}

// abandon gives up all acks: nobody will take them.
func (o *outbox) abandon() {
	o.mu.Lock()
	late := overdue(o.acks, noPromise)
	o.acks = o.acks[:0]
	o.mu.Unlock()
	o.tellLate(late)
	o.letGo()
}

// unsaid takes all that is left, when nobody will say it any more: how many settles said nil and have not certainly reached the
// server.
func (o *outbox) unsaid() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = overdue(o.acks, noPromise)
	for len(o.unproven) > 0 {
		n += overdue(o.unproven[0].acks, noPromise)
		o.forget(0)
	}
	for _, k := range o.naks {
		if k.said {
			n++
		}
	}
	o.acks, o.naks = nil, nil
	return n
}
