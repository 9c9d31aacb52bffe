package membroker

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
