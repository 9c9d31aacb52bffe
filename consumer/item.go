package consumer

import (
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// An item is one message that goes its way alone: it was in a handler, and somebody decides about it, parks it, or publishes it.
type item struct {
	k    *claim
	m    *Message
	lane []uint64 // its lane; nil: there is no order
	past

	unsent  int32     // how often it could not be published to a retry topic since its run
	publish time.Time // and before when it is not tried again
}

// A past is what is known here of the failed runs of a message, beyond their number.
type past struct {
	first   int64 // when it failed first, by the clock; 0: it did not before
	refused int32 // how many of them were refused (Overloaded), at least
}

// keep copies x, so that it pins neither its work nor a fetch buffer.
func (x item) keep() item {
	x.m, x.lane = x.m.Clone(), slices.Clone(x.lane)
	return x
}

// tokens are what acks it.
func (x item) tokens() []uint64 { return []uint64{x.m.Token} }

// back gives it back at once, with that many failed runs.
func (x item) back(runs int32) []broker.Back { return []broker.Back{{Token: x.m.Token, Runs: runs}} }
