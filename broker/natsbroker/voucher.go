package natsbroker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker/kit"
)

// voucher finds out, over a new connection, whether the consumer is still the one that the outbox waits to write to
// (outbox.go). It does not leave that to the watcher, which may still wait for an answer from the connection before.
type voucher struct {
	side     watchSide
	link     *link
	outbox   *outbox
	consumer *remoteConsumer
	gone     kit.Bell    // for the watcher: it is another one, or none
	blind    atomic.Bool // we may not ask the stream for a message
}

// How long the server has for its first answer, which may be lost with its connection; the next ones have twice as long. And
// the pause between two questions.
const (
	firstVouch = 250 * time.Millisecond
	vouchPause = 100 * time.Millisecond
)

// run asks until ctx ends, whenever the outbox wants to know.
func (v *voucher) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.outbox.doubt:
		}
		for patience := firstVouch; v.wanted() && !v.vouch(ctx, patience); patience = min(2*patience, requestTimeout) {
			if !sleep(ctx, vouchPause) {
				return
			}
		}
	}
}

// wanted says whether there are a connection and a session, and it is not known of them yet. Of the next ones the outbox asks
// anew.
func (v *voucher) wanted() bool {
	_, ok := v.side.toVouch()
	return ok && v.link.connected() && !v.outbox.isSure(epochOf(v.link.conn()))
}

// vouch asks once, and says whether the consumer is the same. Where it is not, the watcher sees to the rest.
func (v *voucher) vouch(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w, ok := v.side.toVouch()
	if !ok {
		return false
	}
	q := v.outbox.ask(epochOf(v.link.conn()))
	info, err := v.consumer.info(ctx)
	if err == nil && v.side.same(w.created, info, epochOf(v.link.conn()).server) {
		if !v.checkEnd(ctx, patience) {
			return false
		}
		v.side.vouched(w, q, info)
		return v.outbox.isSure(q.over)
	}
	if err == nil || missing(err) { // or a cluster is choosing its leader
		v.gone.Ring()
	}
	return false
}

// checkEnd finds out whether the stream has lost its end, where it may be asked: nothing is said then of what came before. false:
// that is not known yet.
func (v *voucher) checkEnd(ctx context.Context, patience time.Duration) bool {
	ws, nth := v.side.witnesses()
	if len(ws) == 0 || v.blind.Load() {
		return true
	}
	lost, sure := v.consumer.lost(ctx, ws)
	if lost {
		v.side.forgot(0, nth)
	}
	return sure || v.blind.Load() || patience >= requestTimeout // no answer: it is not to wait for ever
}
