package natsbroker

import (
	"cmp"
	"slices"
	"time"
)

// ackWindow is the acks that were written and have no receipt yet, in batches. What was written is not yet received: it may lie
// in a buffer of a connection that dies, or come to a server that has no consumer any more (receipt.go). So acks are kept until
// the consumer has answered one that was sent after them, and are sent again otherwise. It does no I/O. Not safe for concurrent
// use.
type ackWindow struct {
	batches []ackBatch // by seq
	count   int        // acks in them
	seq     uint64
	asked   int64 // when a receipt was last asked for, by the source's clock
	hurry   bool  // ask for one now
	spare   spareAcks
}

// A pendingAck is an ack that is to arrive before the lease runs out, by the source's clock; after that another process may get
// the message.
type pendingAck struct {
	reply string
	until int64
	nth   uint64 // which of the deliveries that came here it is of; as slot.nth
}

// never is the time of an ack that may come as late as it does: a repeated one, or one of which ErrLost was said.
const never = 1<<63 - 1

// An ackBatch is acks that were handed to a connection, with receipts for the first and the last.
type ackBatch struct {
	seq     uint64
	over    connEpoch
	acks    []pendingAck
	asked   int64 // when the last receipt was asked for, by the source's clock; notAsked: more acks may join
	begun   bool  // the first receipt came
	refused bool  // the server has no such consumer at the moment
	told    bool  // the last receipt was heard of
}

// notAsked is the time of a receipt that was not yet asked for.
const notAsked = -1

// maxUnproven bounds the acks kept to be sent again. The oldest are let go first, and told as late; one that was lost comes
// again, and is acked then (see finished).
const maxUnproven = 1 << 16

// enter books acks that are about to be written over a connection, and says what to write, and which receipts to ask for. When it
// is time for one and there is no ack to ask with, the last ack is sent again. Without listening no receipt would come.
func (w *ackWindow) enter(acks []pendingAck, over connEpoch, listening bool, now int64) (send []pendingAck, first, last receipt) {
	ask := listening && w.due(len(acks) > 0, now)
	b := w.open(over)
	if b == nil && len(acks) == 0 {
		return acks, 0, 0
	}
	if b == nil {
		b = w.begin(over)
		b.begun = ask && len(acks) == 1 // its only receipt is the last one
		if listening && !b.begun {
			first = firstReceipt(b.seq)
		}
	}
	b.acks = append(b.acks, acks...)
	w.count += len(acks)
	if !ask {
		return acks, first, 0
	}
	if len(acks) == 0 {
		acks = append(acks, b.acks[len(b.acks)-1])
	}
	w.hurry, w.asked, b.asked = false, now, now
	return acks, first, lastReceipt(b.seq)
}

// due says whether it is time to ask for a receipt.
func (w *ackWindow) due(any bool, now int64) bool { return w.hurry || any && now-w.asked >= askEvery }

// open is the batch that more acks over a connection may join; nil: there is none.
func (w *ackWindow) open(over connEpoch) *ackBatch {
	if n := len(w.batches); n > 0 && w.batches[n-1].asked == notAsked && w.batches[n-1].over == over {
		return &w.batches[n-1]
	}
	return nil
}

func (w *ackWindow) begin(over connEpoch) *ackBatch {
	w.seq++
	w.batches = append(w.batches, ackBatch{seq: w.seq, over: over, acks: w.spare.take(), asked: notAsked})
	return &w.batches[len(w.batches)-1]
}

func (w *ackWindow) find(r receipt) (i int, ok bool) {
	return slices.BinarySearchFunc(w.batches, r.batch(), func(b ackBatch, seq uint64) int { return cmp.Compare(b.seq, seq) })
}

// asking is when the receipt was asked for, where it is that of a batch's last ack, and nothing was heard of it before; else
// notAsked.
func (w *ackWindow) asking(r receipt) int64 {
	i, ok := w.find(r)
	if !ok || !r.isLast() || w.batches[i].told {
		return notAsked
	}
	w.batches[i].told = true
	return w.batches[i].asked
}

// answered takes a receipt, or the server's word that there is nobody to give one, and appends what is to be sent again. late is
// how many were to arrive before now.
func (w *ackWindow) answered(r receipt, taken bool, now int64, again []pendingAck) (acks []pendingAck, late int) {
	i, ok := w.find(r)
	if !ok { // sent again meanwhile
		return again, 0
	}
	switch b := &w.batches[i]; {
	case !taken:
		b.refused = true
	case !r.isLast():
		b.begun = true
	case b.begun:
		late = overdue(b.acks, now)
		w.forget(i)
	default: // receipts come in their order: the first was lost
		again = append(again, b.acks...)
		w.forget(i)
	}
	return again, late
}

// review appends the acks over a connection that were refused, or wait for their receipt for longer than patience, and has the
// next write ask for the last ones'.
func (w *ackWindow) review(over connEpoch, now, patience int64, again []pendingAck) []pendingAck {
	for i := 0; i < len(w.batches); {
		b := &w.batches[i]
		if b.over != over || !b.refused && (b.asked == notAsked || now-b.asked < patience) {
			i++
			continue
		}
		again = append(again, b.acks...)
		w.forget(i)
	}
	w.hurry = true
	return again
}

// leave appends the acks that went into another connection than the present one.
func (w *ackWindow) leave(now connEpoch, again []pendingAck) []pendingAck {
	for len(w.batches) > 0 && w.batches[0].over != now {
		again = append(again, w.batches[0].acks...)
		w.forget(0)
	}
	return again
}

// trim lets go of the oldest, where they are too many, and says how many were still to arrive in time.
func (w *ackWindow) trim() (late int) {
	for w.count > maxUnproven && len(w.batches) > 1 {
		late += overdue(w.batches[0].acks, never)
		w.forget(0)
	}
	return late
}

// forgot lets go of what is of messages behind delivered, of the first nth deliveries, and says how many were still to arrive in
// time.
func (w *ackWindow) forgot(delivered, nth uint64) (late int) {
	for i := len(w.batches) - 1; i >= 0; i-- {
		b := &w.batches[i]
		kept, n := known(b.acks, delivered, nth)
		w.count -= len(b.acks) - len(kept)
		b.acks, late = kept, late+n
		if len(kept) == 0 {
			w.forget(i)
		}
	}
	return late
}

// clear lets go of all, and says how many were still to arrive in time.
func (w *ackWindow) clear() (late int) {
	for len(w.batches) > 0 {
		late += overdue(w.batches[0].acks, never)
		w.forget(0)
	}
	return late
}

// overdue counts what was to arrive before now, and has no receipt.
func (w *ackWindow) overdue(now int64) (late int) {
	for i := range w.batches {
		late += overdue(w.batches[i].acks, now)
	}
	return late
}

func (w *ackWindow) shorten() {
	for _, b := range w.batches {
		shorten(b.acks)
	}
}

// refused says whether the consumer of some is not there at the moment.
func (w *ackWindow) refused() bool {
	return slices.ContainsFunc(w.batches, func(b ackBatch) bool { return b.refused })
}

// forget lets go of batch number i.
func (w *ackWindow) forget(i int) {
	b := w.batches[i]
	w.count -= len(b.acks)
	w.spare.give(b.acks)
	if i > 0 {
		w.batches = slices.Delete(w.batches, i, i+1)
		return
	}
	w.batches[0] = ackBatch{}
	w.batches = w.batches[1:]
}

// overdue counts what was to arrive before now, and takes it as told.
func overdue(acks []pendingAck, now int64) (n int) {
	for i := range acks {
		if acks[i].until < now {
			acks[i].until = never
			n++
		}
	}
	return n
}

// restartLoss is how much sooner leases may run out after the server was started again: it stores when they began in whole
// seconds, rounded down (EncodeConsumerState of nats-server).
const restartLoss = int64(time.Second)

func shorten(acks []pendingAck) { shortenOlder(acks, never) }

// shortenOlder takes the loss off what was to arrive before a time.
func shortenOlder(acks []pendingAck, before int64) {
	for i := range acks {
		if acks[i].until < before {
			acks[i].until -= restartLoss
		}
	}
}

// spareAcks are slices to be used again.
type spareAcks [][]pendingAck

func (s *spareAcks) take() []pendingAck {
	n := len(*s)
	if n == 0 {
		return nil
	}
	acks := (*s)[n-1]
	*s = (*s)[:n-1]
	return acks
}

func (s *spareAcks) give(acks []pendingAck) {
	if cap(acks) > 0 && len(*s) < 16 {
		clear(acks)
		*s = append(*s, acks[:0])
	}
}
