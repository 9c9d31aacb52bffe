package natsbroker

import (
	"slices"
	"strings"

	"github.com/longshoremq/longshore/broker"
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
	matches := func(pattern string) bool { return subjectMatches(pattern, topic) }
	return slices.ContainsFunc(s.cfg.URLs, same) && slices.ContainsFunc(subjects, matches)
}

// subjectMatches says whether a pattern takes a subject: * is one token, > is one or more at the end.
func subjectMatches(pattern, subject string) bool {
	for {
		want, pattern2, more := strings.Cut(pattern, ".")
		have, rest, left := strings.Cut(subject, ".")
		switch {
		case want == ">" && !more:
			return true
		case want != "*" && want != have:
			return false
		case !more || !left:
			return more == left
		}
		pattern, subject = pattern2, rest
	}
}
