package kit

import (
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A Gate bounds what is between the broker and its settle (see broker.Budget), and knows whether somebody waits for budget. It
// has no clock. The zero value has no budget, so nothing passes it. It is not safe for concurrent use: it stands under the
// adapter's lock.
//
// Whoever finds no room waits for a signal of the adapter's. Feed and Refill say when to give it:
//
//	receive:  Room not ok → wait for the signal
//	settle:   Free … Free, then Feed: wake → signal; soon → let the loop call Refill
//	loop:     Refill(now): wake → signal; call again at next
//
// Where a loop asks FetchRoom after each settle anyway, nobody waits, and it needs neither. Who was woken and found nothing must
// not wake the loop for that: the two would wake each other for ever.
type Gate struct {
	out       int
	outBytes  int64
	heldN     int
	heldBytes int64
	budget    broker.Budget
	starved   bool      // there was no room for somebody
	freed     bool      // some was freed since, and it was not enough to wake anybody
	refillAt  time.Time // when that is used, however little it is; zero: Refill has not seen it yet

	// Eager wakes whoever waits with each settle. For an adapter to which a Receive of one message costs no more than one of many.
	// Defaults to false.
	Eager bool
}

const (
	// refillWait is how long a little freed budget waits for more.
	refillWait = time.Millisecond
	// smallBudget is up to what a budget is refilled at once: it may be all that keeps the workers busy.
	smallBudget = 256
	// refillPart of a larger one has to be free.
	refillPart = 8
)

// SetBudget sets the budget for what is handed out and asked for from now on. Call Feed after it: somebody may wait.
func (g *Gate) SetBudget(b broker.Budget) { g.budget = b }

// Budget returns the one that holds.
func (g *Gate) Budget() broker.Budget { return g.budget }

// Room returns how much may be handed out now. Where ok is false that is nothing, and somebody waits from here on.
func (g *Gate) Room() (messages int, bytes int64, ok bool) {
	messages, bytes = g.budget.Messages-g.out, g.budget.Bytes-g.outBytes
	return g.open(messages, bytes)
}

// FetchRoom returns how much may be asked for now. Where ok is false that is nothing, and somebody waits from here on.
func (g *Gate) FetchRoom() (messages int, bytes int64, ok bool) {
	messages, bytes = g.budget.Messages-g.out-g.heldN, g.budget.Bytes-g.outBytes-g.heldBytes
	return g.open(messages, bytes)
}

func (g *Gate) open(messages int, bytes int64) (int, int64, bool) {
	if messages <= 0 || bytes <= 0 {
		g.starved = true
		return 0, 0, false
	}
	return messages, bytes, true
}

// Scarce says whether less than half of the bytes may be asked for now.
func (g *Gate) Scarce() bool { return 2*(g.outBytes+g.heldBytes) > g.budget.Bytes }

// HandOut counts messages that are out from here on.
func (g *Gate) HandOut(n int, bytes int64) {
	g.out += n
	g.outBytes += bytes
}

// Free counts messages that were settled, or lost for good. Whoever frees calls Feed when it is done.
func (g *Gate) Free(n int, bytes int64) {
	g.out -= n
	g.outBytes -= bytes
}

// Hold counts what is prefetched, or reserved for what was asked for; negative: what is not any more. messages is 0 where the
// broker is asked for bytes alone, or what is prefetched does not count.
func (g *Gate) Hold(messages int, bytes int64) {
	g.heldN += messages
	g.heldBytes += bytes
}

// Out returns how many messages are handed out and not settled.
func (g *Gate) Out() int { return g.out }

// OutBytes returns their bytes.
func (g *Gate) OutBytes() int64 { return g.outBytes }

// Held returns what Hold counts.
func (g *Gate) Held() (messages int, bytes int64) { return g.heldN, g.heldBytes }

// Starved says whether somebody waits.
func (g *Gate) Starved() bool { return g.starved }

// Feed says whether whoever waits is to be woken: when there is enough for it. Were Receive woken by each settle, it would hand
// out one message at a time under a budget that is used up. soon: not yet, but from now on Refill has something to do.
func (g *Gate) Feed() (wake, soon bool) {
	if !g.starved {
		return false, false
	}
	if g.enough(int64(g.budget.Messages-g.out), int64(g.budget.Messages)) && g.enough(g.budget.Bytes-g.outBytes, g.budget.Bytes) {
		g.fed()
		return true, false
	}
	soon = !g.freed
	g.freed = true
	return false, soon
}

func (g *Gate) enough(free, of int64) bool {
	return free > 0 && (g.Eager || of <= smallBudget || free >= of/refillPart)
}

func (g *Gate) fed() { g.starved, g.freed, g.refillAt = false, false, time.Time{} }

// Refill is Feed's second half: what was freed and was not enough is used after a millisecond. next is when to call it again;
// zero: when Feed says soon.
func (g *Gate) Refill(now time.Time) (wake bool, next time.Time) {
	switch {
	case !g.freed:
	case g.refillAt.IsZero():
		g.refillAt = now.Add(refillWait)
	case !now.Before(g.refillAt):
		g.fed()
		return true, time.Time{}
	}
	return false, g.refillAt
}
