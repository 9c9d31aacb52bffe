package program

import (
	"maps"
	"slices"

	"github.com/longshoremq/longshore/internal/natssubject"
	"github.com/longshoremq/longshore/program/internal/config"
)

// deadStream is the stream of the embedded server that takes the dead letters which no other one takes.
const deadStream = "LONGSHORE_DEAD"

// embeds says whether a configuration needs the embedded server.
func embeds(f *config.File) bool {
	for _, c := range f.Consumers {
		if c.Source.Embedded() {
			return true
		}
	}
	return false
}

// streamsOf are the streams that the embedded server needs for a configuration, sorted by name.
func streamsOf(f *config.File) []stream {
	subjects := map[string][]string{}
	var dead []string
	for _, name := range slices.Sorted(maps.Keys(f.Consumers)) {
		c := f.Consumers[name]
		if !c.Source.Embedded() {
			continue
		}
		for _, in := range c.Reads() { // all are on one server
			if in.NATS != nil {
				subjects[in.NATS.Stream] = append(subjects[in.NATS.Stream], in.NATS.Subjects...)
			}
		}
		if c.DeadLetter != nil {
			dead = append(dead, c.DeadLetter.Targets()...)
		}
	}
	for _, to := range dead {
		if !taken(subjects, to) {
			subjects[deadStream] = append(subjects[deadStream], to)
		}
	}
	var streams []stream
	for _, name := range slices.Sorted(maps.Keys(subjects)) {
		streams = append(streams, stream{name, natssubject.Widest(subjects[name])})
	}
	return streams
}

func taken(subjects map[string][]string, subject string) bool {
	for _, list := range subjects {
		if slices.ContainsFunc(list, func(pattern string) bool { return natssubject.Matches(pattern, subject) }) {
			return true
		}
	}
	return false
}
