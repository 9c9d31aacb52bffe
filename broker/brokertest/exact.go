package brokertest

import "github.com/longshoremq/longshore/broker"

// budgetUsedUpExactly proves that a budget whose bytes are used up to the last one is used again when they are freed. An adapter
// may count more of a message than its value, so sizes are tried in turn: with one of them the budget is a whole number of
// messages. The lease is long, so that nothing that is done in its rhythm mends what stands still.
func budgetUsedUpExactly(w *world) {
	const at, counted, beside, each = 4, 1000, 100, 12
	var ms []broker.Outgoing
	for size := counted; size > counted-beside; size-- {
		ms = append(ms, w.filled(w.sys.Topics[0], each, size)...)
	}
	m := w.join(budget(100, at*counted))
	w.sys.Produce(w, 0, ms...)
	for got := 0; got < len(ms); {
		m.take(1)
		out := m.hand.untook()
		m.mustAck(out...)
		got += len(out)
	}
	w.settled()
	w.handledOnce()
}
