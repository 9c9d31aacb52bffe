package consumer

import (
	"hash/maphash"
)

// An Order says which messages are handled one after the other, in the order in which the source hands them out.
type Order string

const (
	// OrderNone: none are. A retried message comes after later ones.
	OrderNone Order = "none"
	// OrderKey: those of one key, topic and partition; where the broker has no partitions (JetStream), of one key in the durable
	// consumer. A message without a key is ordered with nothing.
	OrderKey Order = "key"
	// OrderPartition: those of one topic and partition; where the broker has no partitions (JetStream), of one subject.
	OrderPartition Order = "partition"
)

// A LanePolicy says what becomes of messages that fail while Lane.Limit others wait behind them.
type LanePolicy string

const (
	// LaneBlock: they are retried as ever. Nothing more of their partition is taken from the broker meanwhile, or where it cannot be
	// told apart, nothing at all.
	LaneBlock LanePolicy = "block"
	// LaneDeadLetter: they are dead-lettered at once, without their remaining attempts, until half as many wait. Only where more
	// come than can be dead-lettered, so that a quarter more wait, is nothing more taken until Limit wait again.
	LaneDeadLetter LanePolicy = "dead_letter"
)

// A Lane is what keeps an order: a message and those that wait behind it, because of its key or partition.
type Lane struct {
	// Limit is how many may wait in one lane; a few more do, because a chunk is taken whole. Raise it where one key has bursts that
	// are larger, lower it where a key that fails shall not use so much of the budget. With LaneDeadLetter it is below what each
	// source has of the budget, or a lane would never be full; with LaneBlock that is for who wants no such limit, and one key may
	// take all of the budget. Defaults to an eighth of Budget.Messages, at most half of a source's.
	Limit int `yaml:"limit" want:"1.."`
	// Full says what to do with a message that fails while Limit others wait behind it. Defaults to LaneBlock.
	Full LanePolicy `yaml:"full" want:"block|dead_letter"`
}

// laneShare of the budget may wait in one lane: one in so many.
const laneShare = 8

// ordered says whether there is an order to keep.
func (c *Config) ordered() bool { return c.Order != OrderNone }

// laneSeed is of this process: two keys that meet in one lane cost each other parallelism, and nobody outside can know which do.
var laneSeed = maphash.MakeSeed()

// laneOf is the number of the lane that m belongs to within its claim's, of 63 bits; 0: to none. Keys of one number share a lane,
// which costs them parallelism and never order, so that no key need be kept.
func (o Order) laneOf(m *Message) uint64 {
	if o == OrderPartition {
		return max(1, maphash.String(laneSeed, m.Topic)>>1)
	}
	if m.Key == nil {
		return 0
	}
	// The topic need not be in it: it is the claim's, or on a broker whose claims are of many topics, equal keys of two topics share
	// a lane.
	return max(1, maphash.Bytes(laneSeed, m.Key)>>1)
}
