package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// closer sees to it that the server has received all settles before the connection is closed.
type closer struct {
	watched  watchSide
	link     *link
	outbox   *outbox
	leases   *leaseKeeper
	consumer *remoteConsumer
	voucher  *voucher
}

// finish waits until the server has received all settles, or nothing more can be done for it, or ctx ends. A nak is written once:
// where its connection was lost, over another one nobody hears whether it came.
func (c *closer) finish(ctx context.Context) error {
	for {
		left, _ := c.outbox.left()
		nc := c.link.conn()
		switch {
		case left == 0 && !nc.IsConnected():
			c.outbox.disconnected()
			return c.unfinished(errNaksLost)
		case nc.IsConnected() && c.flush(ctx, nc):
			return c.unfinished(errNaksLost)
		case nc.IsConnected() && c.forsaken(ctx):
			return nil
		case !sleep(ctx, 10*time.Millisecond):
			return c.unfinished(context.Cause(ctx))
		}
	}
}

var errNaksLost = errors.New("the connection was lost")

// unfinished says what the server has not certainly received; nil: nothing was to be said.
func (c *closer) unfinished(cause error) error {
	left, _ := c.outbox.left()
	switch {
	case left > 0:
		return fmt.Errorf("natsbroker: closing: %d settles did not reach the server: %w", left, cause)
	case c.outbox.keptFromOthers(c.leases.ackWait()):
		return fmt.Errorf("natsbroker: closing: the server did not say that it has received what was given back: %w", cause)
	}
	return nil
}

// flush makes sure that what is on its way to us was sent back, and that what is on its way to the server arrived.
func (c *closer) flush(given context.Context, nc *nats.Conn) bool {
	ctx, cancel := context.WithTimeout(given, requestTimeout)
	defer cancel()
	if c.voucher.wanted() && !c.voucher.vouch(ctx, requestTimeout) {
		return false
	}
	c.outbox.reconnected(epochOf(nc))
	if nc.FlushWithContext(ctx) != nil { // the server has let go of our pulls
		return false
	}
	if !handled(ctx, nc) { // what came before that is in the outbox
		return false
	}
	for c.outbox.pending() > 0 {
		if !nc.IsConnected() || !sleep(ctx, time.Millisecond) {
			return false
		}
	}
	if !c.leases.contact(ctx) {
		return false
	}
	c.outbox.review(epochOf(nc), c.leases.ackWait())
	return c.awaitReceipts(ctx, given, nc) && !c.outbox.awaitsPong() // what came meanwhile may have gone back since
}

// awaitReceipts waits until the consumer has taken all acks, or there is no use in waiting: one that is there, and has given none
// for so long, was set back by a crash of the server and does not know the messages, which come again.
func (c *closer) awaitReceipts(ctx, given context.Context, nc *nats.Conn) bool {
	for {
		left, refused := c.outbox.left()
		switch {
		case left == 0:
			return true
		case refused || !nc.IsConnected():
			return false
		case !sleep(ctx, time.Millisecond):
			if !c.leases.contact(given) {
				return false
			}
			c.outbox.abandon()
			return true
		}
	}
}

// forsaken says that the consumer is no more, so that nothing can be settled.
func (c *closer) forsaken(ctx context.Context) bool {
	was := c.watched.created()
	info, err := c.consumer.sureInfo(ctx)
	if !missing(err) && (err != nil || c.watched.same(was, info, epochOf(c.link.conn()).server)) {
		return false
	}
	c.outbox.abandon()
	return true
}
