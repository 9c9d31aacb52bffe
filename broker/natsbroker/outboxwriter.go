package natsbroker

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

var (
	bodyAck = []byte("+ACK")
	bodyNak = []byte("-NAK")
)

// outboxWriter writes what is in the outbox.
type outboxWriter struct {
	box      *outbox
	link     *link
	receipts receiptInbox
}

// run writes until ctx ends.
func (w *outboxWriter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.box.wake:
		}
		for w.link.connected() && w.write() && !w.box.gathering() {
		}
	}
}

// write sends what is there and says whether there was anything.
func (w *outboxWriter) write() bool {
	nc := w.link.conn()
	listening := w.receipts.listen(nc, w.box.answered)
	out := w.box.take(epochOf(nc), listening)
	if out.empty() {
		return false
	}
	acked := w.writeAcks(nc, out)
	naks, expired := 0, 0
	if acked {
		naks, expired = writeNaks(nc, out.naks, w.box.clock())
	}
	w.box.written(out, out.naks[naks:], expired)
	return acked && naks == len(out.naks)
}

// writeAcks says whether all were written; if not, all of them go over the next connection.
func (w *outboxWriter) writeAcks(nc *nats.Conn, out outgoing) bool {
	for i, a := range out.acks {
		ask := receipt(0)
		switch {
		case i == len(out.acks)-1 && out.last != 0:
			ask = out.last
		case i == 0:
			ask = out.first
		}
		if publishAck(nc, a.reply, w.receipts.subject(ask)) != nil {
			return false
		}
	}
	return true
}

func publishAck(nc *nats.Conn, reply, receipt string) error {
	if receipt == "" {
		return nc.Publish(reply, bodyAck)
	}
	return nc.PublishRequest(reply, receipt, bodyAck)
}

// writeNaks says how many were dealt with, and how many of these were not sent because their lease has run out.
func writeNaks(nc *nats.Conn, naks []nak, now int64) (n, expired int) {
	for ; n < len(naks); n++ {
		k := naks[n]
		if now >= k.until {
			expired++
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
	return n, expired
}

func nakBody(delay time.Duration) []byte {
	b := append(make([]byte, 0, 40), `-NAK {"delay": `...)
	return append(strconv.AppendInt(b, int64(delay), 10), '}')
}
