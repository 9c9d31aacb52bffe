package kafkabroker

import (
	"slices"

	"github.com/longshoremq/longshore/broker"
)

var _ broker.SelfReader = (*Source)(nil)

// Reads implements broker.SelfReader, for publishers that name one of the same brokers.
func (s *Source) Reads(p broker.Publisher, topic string) bool {
	own, ok := p.(*Publisher)
	same := func(b string) bool { return ok && slices.Contains(own.cfg.Brokers, b) }
	return slices.ContainsFunc(s.cfg.Brokers, same) && s.atlas.matches(topic)
}
