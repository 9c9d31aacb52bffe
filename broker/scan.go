package broker

import (
	"errors"
	"time"
)

// A Scan says what to read of what is stored under a topic, without consuming it: no group, no durable, nothing is settled and no
// position moves. It is for brokers that number what they store; dead letters of others are looked at with their own tools.
type Scan struct {
	// Topic is a Kafka topic or a NATS subject without wildcards.
	Topic string
	// Partitions to read; nil: all. Not for brokers without partitions.
	Partitions []int32
	// Offset is where to begin, in each partition; 0: at what is stored first.
	Offset int64
	// Since begins at the first message stored at or after it instead, by the broker's time of a message. The zero time: not so.
	Since time.Time
}

// Scanned says what a scan read.
type Scanned struct {
	// Log names what was read: a topic that was deleted and made again has another name, since its offsets begin again. Empty:
	// unknown.
	Log string
	// Whole: nothing that was stored where the scan began or later has been removed since, as far as the broker can tell, so what
	// was not seen was not there.
	Whole bool
}

var (
	// ErrStopScan, returned by the callback of a scan, ends it without an error.
	ErrStopScan = errors.New("broker: scan is to stop")
	// ErrNoTopic says that there is no such topic, or no stream that takes the subject.
	ErrNoTopic = errors.New("broker: no such topic")
)

// A Place is where a message is stored. Partition is -1 where the broker has none.
type Place struct {
	Partition int32
	Offset    int64
}
