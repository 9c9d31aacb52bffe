package kafkabroker

import (
	"fmt"
	"slices"

	"github.com/longshoremq/longshore/broker"
)

var _ broker.Emitter = (*Source)(nil)

// AckEmitting implements broker.Emitter, where Config.Transactional is set.
func (s *Source) AckEmitting(c *broker.Claim, es []broker.Emission) error {
	p := s.partOf(c)
	if p == nil {
		return errForeign
	}
	return s.h.ackEmitting(p, es)
}

// CheckEmit implements broker.Emitter, by Config.MaxOutputBytes and by what topics have refused.
func (s *Source) CheckEmit(o *broker.Outgoing) error {
	if err := broker.CheckDestination(o.Topic); err != nil {
		return fmt.Errorf("kafkabroker: %w: %w", err, broker.ErrRefused)
	}
	if !ValidTopic(o.Topic) {
		return fmt.Errorf("kafkabroker: %q is no topic: %w", o.Topic, broker.ErrRefused)
	}
	if size := outgoingSize(o); size > s.cfg.MaxOutputBytes {
		return fmt.Errorf("kafkabroker: output of %d bytes, the limit is %d: %w", size, s.cfg.MaxOutputBytes, broker.ErrRefused)
	}
	if s.commit.txn == nil {
		return nil
	}
	return s.commit.txn.dest.demands.refuse(o)
}

// Carries implements broker.Emitter: publishers that name one of the same brokers. A Warning tells, once, of one that would put
// keys into other partitions than the source does.
func (s *Source) Carries(p broker.Publisher) bool {
	own, ok := p.(*Publisher)
	if !ok || !slices.ContainsFunc(s.cfg.Brokers, func(b string) bool { return slices.Contains(own.cfg.Brokers, b) }) {
		return false
	}
	ours, its := partitioner(s.cfg.Partitioner).name(), partitioner(own.cfg.Partitioner).name()
	if ours != its && s.differs.CompareAndSwap(false, true) {
		err := fmt.Errorf("outputs in transactions go by the partitioner %s (Config.Partitioner), and what a publisher to the same "+
			"brokers writes itself by %s (PublisherConfig.Partitioner): a key that both write is in two partitions", ours, its)
		s.events.Say(broker.Event{Kind: broker.Warning, Err: err})
	}
	return true
}

func outgoingSize(o *broker.Outgoing) int {
	size := len(o.Key) + len(o.Value)
	for _, h := range o.Headers {
		size += len(h.Key) + len(h.Value)
	}
	if o.ID != "" {
		size += len(broker.HeaderID) + len(o.ID)
	}
	return size
}
