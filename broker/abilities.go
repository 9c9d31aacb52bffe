package broker

import "time"

// Optional abilities of a Source, found by type assertion after Open. A decorator of a source must forward them.

// A LagReporter knows how far the source is behind.
type LagReporter interface {
	// Lag returns the last known figures. It never blocks and may be called at any time.
	Lag() Lag
}

// Lag says how far a source is behind. Unknown is -1 and never 0: a scaler that reads 0 for unknown takes workers away.
type Lag struct {
	// Waiting was never delivered to anyone.
	Waiting int64
	// Unsettled is Waiting and all that was delivered and not settled.
	Unsettled int64
	// Group: the figures are those of all replicas together (JetStream). Otherwise of this process's claims (Kafka).
	Group bool
	// At is when they were learned; zero: never.
	At time.Time
}

// UnknownLag is the lag of a source that has not learned it yet.
func UnknownLag() Lag { return Lag{Waiting: -1, Unsettled: -1} }

// A PartitionLagReporter knows the lag of each partition that it holds: what it says of them together is its Lag. A partition on
// its way from one process to another may be told of by both, so what several processes say is put together by the partition's
// name, not added up. Only for sources whose Lag is not that of a group.
type PartitionLagReporter interface {
	LagReporter
	// LagByPartition returns the last known figures of each partition, in no order; a partition whose lag was not learned yet has
	// UnknownLag. It never blocks and may be called at any time.
	LagByPartition() []PartitionLag
}

// A PartitionLag is the lag of one partition.
type PartitionLag struct {
	Topic     string
	Partition int32
	Lag
}

// A Pauser can stop handing out topics and go on later. What was prefetched of them goes back, or a paused topic would keep the
// budget from the others.
type Pauser interface {
	// Pause stops the topics; without arguments, all. errors.ErrUnsupported where it cannot be done by topic. It does not block.
	Pause(topics ...string) error
	// Resume undoes Pause. It does not block.
	Resume(topics ...string) error
}

// A Holder can hold a whole claim: nothing of it is handed out until then. It serves retry topics, whose head is not due. What
// was prefetched of the claim goes back.
type Holder interface {
	Hold(c *Claim, until time.Time)
}

// A Rebudgeter can change its budget. It holds for pulls that are not yet sent.
type Rebudgeter interface {
	SetBudget(Budget)
}

// A Windowed source has a bounded window of unfinished offsets per claim.
type Windowed interface {
	// Window says how full it is, 0..1. It is soft: near 1 the engine publishes its retries to the retry topics; the adapter stops intake by itself.
	Window(c *Claim) float64
}

// A SelfReader can tell that it would read what a publisher publishes, so that a consumer is not made to read its own dead
// letters. Unlike the others it is asked before Open.
type SelfReader interface {
	// Reads says that what p publishes to topic is read by this source. false: it is not, or nobody can tell yet. It does not block.
	Reads(p Publisher, topic string) bool
}
