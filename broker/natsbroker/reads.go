package natsbroker

import (
	"slices"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/natssubject"
)

var _ broker.SelfReader = (*Source)(nil)

// Reads implements broker.SelfReader, for publishers that name one of the same servers. Without Subjects it is those of
// CreateStream that tell.
func (s *Source) Reads(p broker.Publisher, topic string) bool {
	own, ok := p.(*Publisher)
	same := func(url string) bool { return ok && slices.Contains(own.cfg.URLs, url) }
	subjects := s.cfg.Subjects
	if len(subjects) == 0 && s.cfg.CreateStream != nil {
		subjects = s.cfg.CreateStream.Subjects
	}
	matches := func(pattern string) bool { return natssubject.Matches(pattern, topic) }
	return slices.ContainsFunc(s.cfg.URLs, same) && slices.ContainsFunc(subjects, matches)
}
