package membroker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Config says what kind of broker it is. The zero value is a partitioned one with one partition for each topic.
type Config struct {
	// Leased makes it act as JetStream does: one log with one sequence for all topics, every member of a group takes from it, each
	// message is leased to its holder and comes again when the lease runs out. Otherwise it acts as Kafka does: a log for each
	// partition, each partition belongs to one member of a group, progress is a committed offset with the finished offsets above it.
	// Defaults to false.
	Leased bool
	// Topics are made at the start, with so many partitions each (ignored where Leased). Others are made when they are first used,
	// with Partitions, unless Strict is set. Defaults to none.
	Topics map[string]int
	// Partitions of a topic that is not in Topics. Defaults to 1.
	Partitions int
	// Strict refuses topics that are not in Topics, until Create makes them. Set it to test how a missing topic is met. Defaults to
	// false.
	Strict bool

	// Lease is how long a source may be silent. Leased: a message that is neither settled nor extended for so long comes again.
	// Partitioned: a source that sends no heartbeat for so long loses its partitions. Sources extend and send heartbeats at a third
	// of it. Defaults to 10 s.
	Lease time.Duration
	// NativeDelay is the longest delay that the broker keeps for a Nack; negative means none. It needs Leased. Defaults to 24 h
	// where Leased, else to none.
	NativeDelay time.Duration
	// Attempts says what Message.Attempt means: broker.AtLeast counts known failed runs, broker.AtMost deliveries, broker.Exact
	// deliveries without those that were given back unhandled. Defaults to broker.AtMost where Leased, else to broker.AtLeast, which
	// is the zero value: a Leased broker cannot be told AtLeast.
	Attempts broker.Trust
	// MaxDeliveries: after so many deliveries a message is dropped, as JetStream's MaxDeliver does. It needs Leased. Defaults to 0,
	// never.
	MaxDeliveries int
	// AtMostOnce: a message counts as settled when it was delivered, as with core NATS. It needs Leased. Defaults to false.
	AtMostOnce bool
	// Atomic: sources store what is emitted together with their progress (broker.Emitter), as Kafka does in transactions. Not with
	// Leased. Defaults to false.
	Atomic bool
	// MaxMessageBytes is the largest key, value and headers together that Publish takes; larger ones are broker.ErrRefused. Defaults
	// to 8 MiB.
	MaxMessageBytes int
}

// SourceConfig says how one process consumes.
type SourceConfig struct {
	// Group shares the work and its progress under this name. Defaults to "group".
	Group string
	// Topics to consume. Defaults to all that Config.Topics names.
	Topics []string
	// Prefetch is how many messages at most are held ready for Receive, beyond those that were handed out. Where Leased they are
	// leased to this source, so fewer spread better over several. Defaults to 256.
	Prefetch int
	// Window is how far the highest offset handed out may be ahead of the committed one, per partition; beyond it intake stops with
	// a Stalled event. Not used where Leased. Defaults to 65,536.
	Window int
	// CommitInterval is how long a settle may wait before it is sent. Defaults to 5 ms.
	CommitInterval time.Duration
	// RevokeWait is how long running handlers may go on when a partition is revoked. Defaults to 5 s.
	RevokeWait time.Duration
}

const (
	// retryEvery is the pause between tries while the broker is away.
	retryEvery = 20 * time.Millisecond
	// remembered is how many sequences a leased source remembers after they were finished, so that it can ack them again.
	remembered = 8192
)

func (c Config) withDefaults() Config {
	if c.Partitions == 0 {
		c.Partitions = 1
	}
	if c.Lease == 0 {
		c.Lease = 10 * time.Second
	}
	if c.NativeDelay == 0 && c.Leased && !c.AtMostOnce {
		c.NativeDelay = 24 * time.Hour
	}
	if c.Leased && c.Attempts == broker.AtLeast {
		c.Attempts = broker.AtMost
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = 8 << 20
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("membroker config: "+format, args...))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Topics)) {
		n := c.Topics[name]
		if name == "" {
			bad("Topics has an empty name")
		}
		if n < 0 || (n == 0 && !c.Leased) {
			bad("Topics[%q] is %d partitions, want at least 1", name, n)
		}
	}
	if c.Partitions < 0 {
		bad("Partitions is %d, want at least 1", c.Partitions)
	}
	if c.Lease < 0 {
		bad("Lease is %v, want more than 0", c.Lease)
	}
	if c.NativeDelay > 0 && (!c.Leased || c.AtMostOnce) {
		bad("NativeDelay is %v, which needs Leased and not AtMostOnce", c.NativeDelay)
	}
	if c.Attempts < broker.AtLeast || c.Attempts > broker.Exact {
		bad("Attempts is %d, want AtLeast, AtMost or Exact", c.Attempts)
	}
	if c.Attempts == broker.AtMost && !c.Leased {
		bad("Attempts is AtMost, which needs Leased")
	}
	if c.MaxDeliveries < 0 || (c.MaxDeliveries > 0 && !c.Leased) {
		bad("MaxDeliveries is %d, want at least 0, and 0 without Leased", c.MaxDeliveries)
	}
	if c.AtMostOnce && !c.Leased {
		bad("AtMostOnce is set, which needs Leased")
	}
	if c.Atomic && c.Leased {
		bad("Atomic is set, and so is Leased: acks of leases are not part of a commit")
	}
	if c.MaxMessageBytes < 0 {
		bad("MaxMessageBytes is %d, want more than 0", c.MaxMessageBytes)
	}
	return errors.Join(errs...)
}

func (c Config) traits() broker.Traits {
	return broker.Traits{
		Ordered:       !c.Leased,
		Attempts:      c.Attempts,
		NativeDelay:   max(0, c.NativeDelay),
		MaxDeliveries: c.MaxDeliveries,
		AtMostOnce:    c.AtMostOnce,
		Together:      !c.Leased,
		Atomic:        c.Atomic,
	}
}

func (c SourceConfig) withDefaults() SourceConfig {
	if c.Group == "" {
		c.Group = "group"
	}
	if c.Prefetch == 0 {
		c.Prefetch = 256
	}
	if c.Window == 0 {
		c.Window = 1 << 16
	}
	if c.CommitInterval == 0 {
		c.CommitInterval = 5 * time.Millisecond
	}
	if c.RevokeWait == 0 {
		c.RevokeWait = 5 * time.Second
	}
	return c
}

func (c SourceConfig) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("membroker source config: "+format, args...))
	}
	if len(c.Topics) == 0 {
		bad("Topics is empty, and so is the broker's Config.Topics")
	}
	for _, name := range c.Topics {
		if name == "" {
			bad("Topics has an empty name")
		}
	}
	if c.Prefetch < 0 {
		bad("Prefetch is %d, want at least 1", c.Prefetch)
	}
	if c.Window < 0 {
		bad("Window is %d, want at least 1", c.Window)
	}
	if c.CommitInterval < 0 {
		bad("CommitInterval is %v, want more than 0", c.CommitInterval)
	}
	if c.RevokeWait < 0 {
		bad("RevokeWait is %v, want more than 0", c.RevokeWait)
	}
	return errors.Join(errs...)
}
