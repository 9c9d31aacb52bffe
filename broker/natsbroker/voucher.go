package natsbroker

import (
	"context"
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
	gone     kit.Bell // for the watcher: it is another one, or none
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
	_, ok := v.side.look()
	return ok && v.link.connected() && !v.outbox.isSure(epochOf(v.link.conn()))
}

// vouch asks once, and says whether the consumer is the same. Where it is not, the watcher sees to the rest.
func (v *voucher) vouch(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w, ok := v.side.look()
	if !ok {
		return false
	}
	q := v.outbox.ask(epochOf(v.link.conn()))
	info, err := v.consumer.info(ctx)
	if err == nil && info.Created.Equal(w.created) {
		v.side.vouched(w, q, info)
		return v.outbox.isSure(q.over)
	}
	if err == nil || missing(err) { // or a cluster is choosing its leader
		v.gone.Ring()
	}
	return false
}
