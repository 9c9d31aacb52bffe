package natsbroker

import (
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/internal/natssubject"
)

// takesAll says whether a consumer with a filter gets all messages of a stream: there is none, or it covers each subject that the
// stream takes now. What a stream has from others, or stores under another subject, need not have one of its own.
func takesAll(filter []string, sc jetstream.StreamConfig) bool {
	if len(filter) == 0 || slices.Contains(filter, ">") {
		return true
	}
	if len(sc.Subjects) == 0 || len(sc.Sources) > 0 || sc.SubjectTransform != nil {
		return false
	}
	return !slices.ContainsFunc(sc.Subjects, func(s string) bool {
		return !slices.ContainsFunc(filter, func(f string) bool { return natssubject.Matches(f, s) })
	})
}
