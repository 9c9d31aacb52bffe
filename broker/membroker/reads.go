package membroker

import (
	"slices"

	"github.com/longshoremq/longshore/broker"
)

var _ broker.SelfReader = (*Source)(nil)

// Reads implements broker.SelfReader.
func (s *Source) Reads(p broker.Publisher, topic string) bool {
	own, ok := p.(*Publisher)
	return ok && own.b == s.b && slices.Contains(s.cfg.Topics, topic)
}
