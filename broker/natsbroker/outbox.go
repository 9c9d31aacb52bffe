package natsbroker

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

var (
	bodyAck = []byte("+ACK")
	bodyNak = []byte("-NAK")
)

// outbox is what has yet to be said to the server: settles wait here, and a writer sends them. So Ack and Nack never wait for a socket
// whose other end does not read; and while there is no connection they stay here, where a nak can still be looked at.
//
// What was written is not yet received: it may lie in a buffer of a connection that dies. So acks are kept until a PING sent after
// them was answered over the same connection, and sent again over the next one. Sending an ack twice is harmless; a nak is
// never sent again, since by then it may take the message from somebody else.
type outbox struct {
	link  *link
	clock func() int64
	// dropped is told how many naks were not sent because their lease had run out, late how many acks may have come after theirs.
	dropped, late func(n int)

	mu       sync.Mutex
	acks     []promise
	naks     []nak
	wake     chan struct{}
	writing  bool
	unproven []written
	count    int // acks in unproven
	seq      uint64
	spare    [][]promise
	// server is the id of the last one that was written to; restarted is when it was last found to be another, by the source's clock.
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
}

// written is a batch of acks that was handed to a connection.
type written struct {
	seq  uint64
	over trip
	acks []promise
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

// restartLoss is how much sooner leases may run out after the server was started again: it stores when they began in whole seconds, rounded
// down (EncodeConsumerState of nats-server).
const restartLoss = int64(time.Second)

// maxUnproven bounds the acks kept to be sent again. The oldest are let go first; one that was lost all the same comes again, and is
// acked then (see finished).
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

// meet looks which server a connection leads to. After a restart, what was promised before may hold for less long. The caller holds o.mu.
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
	o.naks = append(o.naks, nak{reply, delay, until})
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
	o.mu.Lock()
	o.meet(over.server)
	acks, naks := o.acks, o.naks
	o.acks, o.naks = o.takeSpare(), nil
	o.writing = len(acks)+len(naks) > 0
	o.mu.Unlock()
	if len(acks)+len(naks) == 0 {
		o.done(nil, nil, trip{}, acks)
		return false
	}
	a := 0
	for a < len(acks) && nc.Publish(acks[a].reply, bodyAck) == nil {
		a++
	}
	n := 0
	if a == len(acks) {
		n = o.writeNaks(nc, naks)
	}
	o.done(acks[a:], naks[n:], over, acks[:a])
	return a == len(acks) && n == len(naks)
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

// done puts back what could not be written and remembers what was.
func (o *outbox) done(acks []promise, naks []nak, over trip, sent []promise) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = false
	if len(acks) > 0 {
		o.acks = append(append([]promise(nil), acks...), o.acks...)
	}
	if len(naks) > 0 {
		o.naks = append(append([]nak(nil), naks...), o.naks...)
	}
	if len(sent) > 0 {
		o.seq++
		o.unproven = append(o.unproven, written{o.seq, over, sent})
		o.count += len(sent)
	} else {
		o.giveSpare(sent)
	}
	for o.count > maxUnproven && len(o.unproven) > 1 {
		o.forget()
	}
}

// forget lets go of the oldest batch. The caller holds o.mu.
func (o *outbox) forget() {
	w := o.unproven[0]
	o.unproven[0] = written{}
	o.unproven = o.unproven[1:]
	o.count -= len(w.acks)
	o.giveSpare(w.acks)
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

// mark names the batches that are written by now.
func (o *outbox) mark() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seq
}

// proven lets go of the batches up to seq: a PING sent after them, over the same connection, was answered now. What was promised for
// an earlier time may not have held.
func (o *outbox) proven(seq uint64, over trip) {
	now, late := o.clock(), 0
	o.mu.Lock()
	for len(o.unproven) > 0 && o.unproven[0].seq <= seq && o.unproven[0].over == over {
		for _, a := range o.unproven[0].acks {
			if a.until < now {
				late++
			}
		}
		o.forget()
	}
	o.mu.Unlock()
	if late > 0 {
		o.late(late)
	}
}

// again queues the acks that went into another connection than the present one.
func (o *outbox) again(now trip) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.meet(now.server)
	for len(o.unproven) > 0 && o.unproven[0].over != now {
		o.acks = append(o.acks, o.unproven[0].acks...)
		o.forget()
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

// left is how many settles the server has not certainly received.
func (o *outbox) left() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.acks) + len(o.naks) + o.count
}
