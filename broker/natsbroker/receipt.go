package natsbroker

import (
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

// A receipt is the number that an ack's reply subject ends with: it names the batch, and whether it is for its first ack or its
// last. Zero: none is asked for.
type receipt uint64

func firstReceipt(seq uint64) receipt { return receipt(2 * seq) }
func lastReceipt(seq uint64) receipt  { return receipt(2*seq + 1) }

func (r receipt) batch() uint64 { return uint64(r / 2) }
func (r receipt) isLast() bool  { return r%2 == 1 }

// receiptInbox is the subscription at which receipts come. Not safe for concurrent use.
type receiptInbox struct {
	of     *nats.Conn
	prefix string
}

// listen subscribes over nc, if that is not done, and says whether receipts come. answered is told of each, and whether the ack
// was taken; else there is nobody to take it.
func (i *receiptInbox) listen(nc *nats.Conn, answered func(r receipt, taken bool)) bool {
	if i.of == nc {
		return true
	}
	prefix := nc.NewInbox() + "."
	sub, err := nc.Subscribe(prefix+"*", func(m *nats.Msg) {
		if n, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, prefix), 10, 64); err == nil {
			answered(receipt(n), m.Header.Get("Status") == "")
		}
	})
	if err != nil || sub.SetPendingLimits(-1, -1) != nil {
		return false
	}
	i.of, i.prefix = nc, prefix
	return true
}

// subject is where a receipt is to go; empty for none.
func (i *receiptInbox) subject(r receipt) string {
	if r == 0 {
		return ""
	}
	return i.prefix + strconv.FormatUint(uint64(r), 10)
}
