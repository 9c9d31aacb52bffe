package natsbroker

// A balance tells how much of what is unsettled others settled in our turn: the process that was pinned before, late, or a limit
// of the stream. The server only counts what is unsettled. What else changes that count is known here: deliveries of what is new,
// and our own acks. So what it falls by, beyond these, was settled by others. It may be here, and would then stand for something
// that is missing. Not safe for concurrent use.
type balance struct {
	firsts int // deliveries, in our turn, of what was not unsettled before; those that were lost may be some
	done   int // and what was acked of it here, once each: what comes again and was finished is counted already, or too low
	// maybes are those acks since the last look of what others may have settled before.
	maybes int
	was    int   // what was unsettled, less the firsts, and with what was done
	looked bool  // there was a look
	fell   int   // how much of what is here others settled, at most: it fell by so much, and it is not known what that was
	asked  int64 // when what others may have settled went back last, to learn whether it is; 0: it never did
}

// A fall is what a look at the count says of others.
type fall int

const (
	fallNone  fall = iota
	fallFirst      // there was no look before it to compare with: what was delivered before may be settled
	fallSome       // they settled something: any of what is here, for a server that crashed may forget that it delivered a message
)

// look takes what the server counts, when all deliveries that it had made are here, and all of our acks are counted. explained
// is how much of what is here is known since the last look to be settled by others.
//
// An ack of what others had settled changes no count: it rises by that, and less is hidden. It rises as well by what a cluster
// has not agreed yet to deliver, and falls again when that comes: then it is as it was. Where something was acked that others may
// have settled, what they settled meanwhile is perhaps not seen.
func (b *balance) look(pending, explained int) fall {
	now, maybes := pending-b.firsts+b.done, b.maybes
	b.maybes = 0
	if !b.looked { // what was settled by then is in the count
		b.was, b.looked = now, true
		return fallFirst
	}
	fell := max(b.was-now, -maybes)
	b.was -= fell
	doubt := fell > 0 || maybes > 0 && b.fell > 0
	if b.fell = max(b.fell+fell-explained, 0); doubt {
		return fallSome
	}
	return fallNone
}

// acked takes that something was acked here. What is known to be settled by others is off the server's count already.
func (b *balance) acked(others othersSettle) {
	switch others {
	case othersMay:
		b.maybes++
		b.done++
	case othersDidNot:
		b.done++
	}
}

// hidden is how much of the doubted is not counted by the server, at most.
func (b *balance) hidden(doubted int) int {
	if doubted == 0 {
		b.fell = 0
	}
	return min(b.fell, doubted)
}
