package natsbroker

import "slices"

// A witness is a message that was delivered here, and of which something may yet be said. After a loss of power a stream may be
// without its end, and gives the sequences to other messages; how far the consumer has delivered does not tell, where another
// process got these first. But a stream that still has a witness, by its sequence and its time, has all that stood before it.
// Messages that are settled are witnesses of whether a stream whose consumer is gone was restored from an older copy.
type witness struct {
	seq   uint64
	nanos int64
}

// witnesses are the newest, the newest first: more than one, since a stream may let go of those that are settled. Not safe for
// concurrent use.
type witnesses []witness

const mostWitnesses = 8

func (w *witnesses) add(seq uint64, nanos int64) {
	i := 0
	for i < len(*w) && (*w)[i].seq > seq {
		i++
	}
	if i == mostWitnesses || i < len(*w) && (*w)[i].seq == seq {
		return
	}
	*w = slices.Insert(*w, i, witness{seq, nanos})
	*w = (*w)[:min(len(*w), mostWitnesses)]
}

// witnesses adds those that are here, of the deliveries up to one.
func (s *stock) witnesses(w *witnesses, nth uint64) {
	for _, ses := range s.sessions() {
		for i := range ses.slots.all {
			if sl := &ses.slots.all[i]; sl.state != slotFree && !sl.forgotten && sl.nth <= nth {
				w.add(sl.seq, sl.nanos)
			}
		}
	}
}

// witnesses adds those of which an ack is on its way.
func (o *outbox) witnesses(w *witnesses, nth uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	add := func(acks []pendingAck) {
		for _, a := range acks {
			if d, ok := parseReply(a.reply); ok && a.nth <= nth {
				w.add(d.stream, d.nanos)
			}
		}
	}
	add(o.settles.acks)
	for _, b := range o.window.batches {
		add(b.acks)
	}
}
