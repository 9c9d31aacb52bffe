package natsbroker

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker/kit"
)

// leaseKeeper extends the leases of what is here, and finds out when the server last answered (leases.go).
type leaseKeeper struct {
	side      leaseSide
	link      *link
	outbox    *outbox
	heartbeat time.Duration
	maxHold   time.Duration
	ask       kit.Bell // for contact
	changed   kit.Bell // the ack wait is another
}

// ackWait is that of the consumer as it is.
func (k *leaseKeeper) ackWait() int64 { return k.side.ackWait() }

// extend sends +WPI for all that is here, every AckWait/3, from receipt: what waits in the engine's queue is in here too. It runs
// until ctx ends.
func (k *leaseKeeper) extend(ctx context.Context) {
	for k.rest(ctx) {
		if !k.link.connected() {
			continue // nothing may wait in a buffer until it is too late
		}
		k.outbox.extending(true)
		nc := k.link.conn()
		for _, reply := range k.side.extend(k.maxHold, epochOf(nc)) {
			if nc.Publish(reply, bodyProgress) != nil {
				break // the connection went; what was not extended shows by the next contact
			}
		}
		k.outbox.extending(false)
		k.ask.Ring()
	}
}

// rest waits until the next round; false: ctx has ended.
func (k *leaseKeeper) rest(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-k.changed:
	case <-time.After(time.Duration(k.side.ackWait()) / 3):
	}
	return true
}

var bodyProgress = []byte("+WPI")

// listen makes contact after each round, and between two, since what arrives has a lease only from the last contact. It runs
// until ctx ends.
func (k *leaseKeeper) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.ask:
		case <-time.After(min(time.Duration(k.side.ackWait())/6, reviewEvery)):
		}
		if k.contact(ctx) {
			k.outbox.review(epochOf(k.link.conn()), k.side.ackWait())
		}
	}
}

// contact sends a PING and, when it is answered, moves leases on.
func (k *leaseKeeper) contact(ctx context.Context) bool {
	nc := k.link.conn()
	if nc == nil || !nc.IsConnected() {
		return false
	}
	p := k.side.ping(epochOf(nc))
	ctx, cancel := context.WithTimeout(ctx, min(max(time.Duration(k.side.ackWait()), time.Second), 2*k.heartbeat))
	defer cancel()
	if nc.FlushWithContext(ctx) != nil || !handled(ctx, nc) || epochOf(nc) != p.over {
		return false
	}
	k.side.answered(p)
	k.outbox.heard(p)
	return true
}

// handled waits until all that was read from the connection has been handled, and says whether it has.
func handled(ctx context.Context, nc *nats.Conn) bool {
	done := make(chan struct{})
	if nc.Barrier(func() { close(done) }) != nil {
		return false
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
