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
	// Waiting was never delivered to anyone. What is prefetched may count as delivered.
	Waiting int64
	// Held is what of Waiting the broker gives nobody for now, since somebody has paused the consumer there (JetStream).
	Held int64
	// Full: as many are delivered and not settled as may be, over all processes, so that the broker gives nobody more until some are
	// settled. What it keeps for a delay is among them (JetStream's max_ack_pending).
	Full bool
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

// A FloorReporter knows up to where all messages of its logs are finished. It serves those who remember what was handled, and
// want to forget it as soon as it cannot come again: package inbox.
type FloorReporter interface {
	// Floors returns the floor of each log that it had a claim of, as the broker was last known to have it, in no order. A log of
	// which nothing is known is not among them, nor need one be that is gone. A floor may be older than the broker's, and is never
	// above it. It is the last one after the claim has ended, and after Close. It never blocks and may be called at any time.
	Floors() []Floor
}

// A Floor says that all messages of a log below an offset are finished, as the broker has it down: handled by whoever had them,
// dead-lettered, or gone. None of them is delivered again, unless the broker forgets, or somebody moves the position back.
type Floor struct {
	// Log is that of Message.Log.
	Log string
	// Offset is the lowest one that may be unfinished.
	Offset int64
}

// A Pauser can stop handing out topics and go on later. What was prefetched of them goes back, or a paused topic would keep the
// budget from the others.
type Pauser interface {
	// Pause stops the topics; without arguments, all. errors.ErrUnsupported where it cannot be done by topic. It may be called at
	// any time, also before Open, and does not block. A Receive that met it may still return messages of them; one that is called
	// later does not. A source that is paused tells Down and Up all the same.
	Pause(topics ...string) error
	// Resume undoes Pause. It does not block.
	Resume(topics ...string) error
}

// A Holder can hold a whole claim. It serves retry topics, whose head is not due, and lanes that are full. What was prefetched of
// the claim goes back, or is kept where nobody else needs the room, or could have it.
type Holder interface {
	// Hold has nothing of the claim handed out until then. The last call holds, also where it names an earlier time: one that has
	// passed lets the claim go on at once. A claim that has ended, or is another source's, is let be. It does not block.
	Hold(c *Claim, until time.Time)
}

// A Rebudgeter can change its budget. It holds for pulls that are not yet sent.
type Rebudgeter interface {
	SetBudget(Budget)
}

// A Windowed source has a bounded window of unfinished offsets per claim.
type Windowed interface {
	// Window says how full it is, 0..1. It is soft: near 1 the engine publishes its retries to the retry topics; the adapter stops
	// intake by itself.
	Window(c *Claim) float64
}

// A DeliveryLimiter follows a limit of deliveries that somebody changes at the broker while it runs.
type DeliveryLimiter interface {
	// MaxDeliveries is what Traits.MaxDeliveries would be now, as far as the source has heard. It may be asked at any time after
	// Open, and does not block.
	MaxDeliveries() int
}

// A LeaseReporter knows whether a message that is out is certainly still this process's: each has a lease of its own, or the
// process has all by one, a session. A message may wait in the engine for long, and the process stand still or be cut off
// meanwhile.
type LeaseReporter interface {
	// Lapsed says whether the lease of a message of c that is out has run out, so that another process may have it. Then the engine
	// does not begin it anew, but gives it back: where the process has it still, as an answer may tell that is to come, it is handed
	// out again after that. What is not out has no lease that could: false. It does not block.
	Lapsed(c *Claim, token uint64) bool
}

// A MissingReporter can be open while nothing of what it reads exists. Several sources begin together when one of them has
// something.
type MissingReporter interface {
	// Missing says what does not exist, where nothing of what it reads does; nil: something exists, or it will never be there, which
	// Receive tells. It may be asked at any time after Open, and does not block.
	Missing() error
}

// A Describer says what it reads, for traces. It may be asked at any time, also before Open, and does not block.
type Describer interface {
	Describe() Description
}

// A Description is what a source reads, as its configuration says. What is not known, or is not there, is empty.
type Description struct {
	// System is the broker's kind, in the words of OpenTelemetry where these have one: kafka, nats.
	System string
	// Group is the consumer group, the durable consumer or the queue group: what several processes share.
	Group string
	// Stream is JetStream's.
	Stream string
	// Patterns are the subjects that it reads, with wildcards, on brokers that have any number of them.
	Patterns []string
	// Server and Port are of the first server that it is told of.
	Server string
	Port   int
}

// Readers names all that share the messages, among those that may read the same ones: a durable is one of its stream, and another
// stream, which may be a mirror of that, may have one of the same name.
func (d Description) Readers() string {
	if d.Stream == "" {
		return d.Group
	}
	return d.Stream + "/" + d.Group
}

// A SelfReader can tell that it would read what a publisher publishes, so that a consumer is not made to read its own dead
// letters. Unlike the others it is asked before Open.
type SelfReader interface {
	// Reads says that what p publishes to topic is read by this source. false: it is not, or nobody can tell yet. It does not block.
	Reads(p Publisher, topic string) bool
}

// A Sharer knows which part of its group's work is this process's, so that a limit can be one of all processes together. Its
// methods may be called at any time, and do not block.
type Sharer interface {
	// Share is the part as it is last known. The parts of all processes are never more than the whole, but for the moment until one
	// that stood still notices it, while work is added that not all have heard of, and where the broker itself is split; they are
	// less while work is on its way from one to another. The error says why it can never be told here; it is the same at each call.
	Share() (Share, error)
}

// A Share is Held of All equal parts of the work: of the partitions, or of the processes. Nothing is held before Open has come to
// its end, after Close, and as long as nobody can tell.
type Share struct {
	Held, All int
}

// Part is the share as a number from 0 to 1.
func (s Share) Part() float64 {
	if s.All <= 0 {
		return 0
	}
	return min(1, float64(max(0, s.Held))/float64(s.All))
}
