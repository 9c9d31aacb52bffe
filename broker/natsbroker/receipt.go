package natsbroker

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Whether an ack was taken.
//
// The server puts acks into a queue of the consumer's leader, and answers one that has a reply subject when the consumer has
// settled its message; on a consumer with replicas, when most of them have it (consumer.go of nats-server: pushAck, processAck,
// updateAcks). Acks over one connection are taken in their order, so such an answer, a receipt, is one for all before it.
//
// That a PING was answered says less. A server that shuts down or goes lame ends JetStream first and the connections later, for
// minutes when it is lame, and a leader that steps down drops its queue: who relied on the PONG would take for settled what is
// delivered again. While there is no consumer the server answers such an ack at once, by status 503.
//
// Acks between two such answers are taken for settled, too. Only a leader that came and went between the two, of askEvery, could
// have dropped them. One receipt would not do: of acks that are written while there is no leader, those after it is chosen are
// answered.

// askEvery is how often a receipt is asked for while acks are written; after the last one it is at the next contact.
const askEvery = int64(2 * time.Millisecond)

// reviewEvery is how often it is looked which acks have no receipt, at the latest; they are sent again when a receipt is so late.
const reviewEvery = time.Second

// notAsked is the time of a receipt that was not yet asked for.
const notAsked = -1

// receipts is the subscription at which they come. Only the outbox's writer uses it.
type receipts struct {
	of     *nats.Conn
	prefix string
}

// listen subscribes over nc, if that is not done, and says whether receipts come.
func (r *receipts) listen(nc *nats.Conn, answered func(seq uint64, last, taken bool)) bool {
	if r.of == nc {
		return true
	}
	prefix := nc.NewInbox() + "."
	sub, err := nc.Subscribe(prefix+"*", func(m *nats.Msg) {
		if n, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, prefix), 10, 64); err == nil {
			answered(n/2, n%2 == 1, m.Header.Get("Status") == "")
		}
	})
	if err != nil || sub.SetPendingLimits(-1, -1) != nil {
		return false
	}
	r.of, r.prefix = nc, prefix
	return true
}

func (r *receipts) first(seq uint64) string { return r.prefix + strconv.FormatUint(2*seq, 10) }
func (r *receipts) last(seq uint64) string  { return r.prefix + strconv.FormatUint(2*seq+1, 10) }

// answered takes a receipt, or the server's word that there is nobody to give one. What was promised for an earlier time may not
// have held.
func (o *outbox) answered(seq uint64, last, taken bool) {
	o.mu.Lock()
	late := 0
	i, ok := slices.BinarySearchFunc(o.unproven, seq, func(w written, seq uint64) int { return cmp.Compare(w.seq, seq) })
	if ok { // else sent again meanwhile
		switch w := &o.unproven[i]; {
		case !taken:
			w.refused = true
		case !last:
			w.begun = true
		case w.begun:
			late = overdue(w.acks, o.clock())
			o.forget(i)
		default: // receipts come in their order: the first was lost
			o.acks = append(o.acks, w.acks...)
			o.forget(i)
			o.rouse()
		}
	}
	o.mu.Unlock()
	o.tellLate(late)
}

// review is called after the server was heard over that connection: it has acks without a receipt sent again, the last ones asked
// for theirs, and tells which may have come too late.
func (o *outbox) review(over trip, ackWait int64) {
	o.mu.Lock()
	now := o.clock()
	for i := 0; i < len(o.unproven); {
		w := &o.unproven[i]
		if w.over != over || !w.refused && (w.asked == notAsked || now-w.asked < min(int64(reviewEvery), ackWait/4)) {
			i++
			continue
		}
		o.acks = append(o.acks, w.acks...)
		o.forget(i)
	}
	late := overdue(o.acks, now)
	for i := range o.unproven {
		late += overdue(o.unproven[i].acks, now)
	}
	o.hurry = true
	o.mu.Unlock()
	o.rouse()
	o.tellLate(late)
}
