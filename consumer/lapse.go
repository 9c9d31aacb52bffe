package consumer

import (
	"slices"

	"github.com/longshoremq/longshore/broker"
)

// A lapse is a message that went back to the broker while its claim goes on, for its lease had run out, or that of one before
// it. It comes again, and what stands behind it in its lane comes after it. So what waits in the lane goes back, too
// (lanes.done); and so must what is received and not in its lane yet. The sequence: 1 is queued, and 2 is received; before 2 is
// in its lane the lease of 1 runs out, and 1 goes back; 2 finds the lane free, and runs before 1.
type lapse struct {
	k      *claim
	number uint64 // of the lane
	offset int64
	calls  int64 // of Receive, as many as had begun when it was back: what one of these returned may have been handed out before
}

// lapsed has what is received behind messages of k go back, as they have: they are back by now.
func (k *claim) lapsed(ls []lapse) {
	calls := k.feed.calls.Load()
	for i := range ls {
		ls[i].calls = calls
	}
	k.lanes.lapsed(ls)
}

func (t *lanes) lapsed(ls []lapse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lapses = append(t.lapses, ls...)
}

// sortOut takes out of messages, which a call of Receive returned, those that stand behind a lapse. Where that came again with
// them, they were handed out after it. What it returns are those that are left, at the front of ms, and what is to go back. It
// needs t.mu.
func (t *lanes) sortOut(k *claim, call int64, ms []broker.Message, numbers []uint64) (left []broker.Message, back []broker.Back) {
	t.lapses = slices.DeleteFunc(t.lapses, func(l lapse) bool {
		return l.k.closed.Load() || l.k.feed == k.feed && (l.calls < call || l.cameAgain(ms, numbers))
	})
	left = ms[:0]
	for i := range ms {
		if slices.ContainsFunc(t.lapses, func(l lapse) bool { return l.k == k && l.number == numbers[i] && l.offset < ms[i].Offset }) {
			back = append(back, backs(ms[i:i+1])...)
			continue
		}
		numbers[len(left)] = numbers[i]
		left = append(left, ms[i])
	}
	return left, back
}

// cameAgain says whether the message is among those. One that stood before it in its lane does not do: that may have been back
// before it.
func (l lapse) cameAgain(ms []broker.Message, numbers []uint64) bool {
	for i := range ms {
		if numbers[i] == l.number && ms[i].Offset == l.offset {
			return true
		}
	}
	return false
}

// giveBackLapsed gives back messages of k whose leases have run out, and what stood behind them in their works.
func (t *till) giveBackLapsed(k *claim, ms []broker.Message, lanes []uint64) {
	t.tell.count.givenBack.Add(int64(len(ms)))
	t.nackAlone(k, backs(ms))
	if k.lanes != nil {
		var ls []lapse
		for i := range ms {
			if number := t.order.laneOf(&ms[i]); number != 0 {
				ls = append(ls, lapse{k: k, number: number, offset: ms[i].Offset})
			}
		}
		k.lapsed(ls)
	}
	t.release(k, lanes, true)
	t.tell.tell(GivenBack{N: len(ms), Reason: "lost"})
}
