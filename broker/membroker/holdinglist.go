package membroker

import "github.com/longshoremq/longshore/broker/kit"

// holdingList has no lock: it stands under that of the holdings.
type holdingList []*holding

func (l holdingList) of(c *cursor) *holding {
	for _, h := range l {
		if h.cur == c {
			return h
		}
	}
	return nil
}

func (l holdingList) without(h *holding) holdingList {
	for i, x := range l {
		if x == h {
			return append(l[:i:i], l[i+1:]...)
		}
	}
	return l
}

// again lets an offset be handed out again that was out under an ended claim. Leased: the broker delivers it again.
func (l holdingList) again(log logEpoch, o int64) {
	for _, h := range l {
		if h.log() == log && !h.sh.leased {
			h.rewind(o)
			h.sh.wake.Ring()
		}
	}
}

// ack settles messages of a claim as handled, and counts what that comes to.
func (l holdingList) ack(cs *claimState, tokens []uint64, t *kit.Tally) {
	h := cs.h
	for _, tok := range tokens {
		switch how, o := cs.settle(tok, done); how {
		case settledNow:
			t.Held++
			if h.sh.leased {
				h.acks = append(h.acks, o)
			}
			if len(h.runs) > 0 {
				delete(h.runs, o)
			}
		case settledLate:
			t.Lost++
			if h.sh.leased {
				h.acks = append(h.acks, o) // of use still: it spares the next holder the work
			}
		case settledStale:
			t.Lost++
			l.again(h.log(), o)
		case settledLost:
			t.Lost++
		default:
			t.Again++
		}
	}
}
