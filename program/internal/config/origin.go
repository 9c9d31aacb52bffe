package config

import (
	"maps"
	"slices"

	"github.com/longshoremq/longshore/internal/natssubject"
)

// Takes says whether messages of a topic or subject are read by a consumer of the file from the same broker as c. A durable
// without subjects reads those of its stream, which are not in the file: streams has them, by WholeStreams.
func (f *File) Takes(c *Consumer, topic string, streams map[*NATS][]string) bool {
	matches := func(subject string) bool { return natssubject.Matches(subject, topic) }
	for _, o := range f.beside(c) {
		if o.takes(topic) {
			return true
		}
		for _, in := range o.Reads() {
			if in.NATS != nil && slices.ContainsFunc(streams[in.NATS], matches) {
				return true
			}
		}
	}
	return false
}

// WholeStreams are the durables without subjects on the same broker as c.
func (f *File) WholeStreams(c *Consumer) (all []*NATS) {
	for _, o := range f.beside(c) {
		for _, in := range o.Reads() {
			if in.NATS != nil && len(in.NATS.Subjects) == 0 {
				all = append(all, in.NATS)
			}
		}
	}
	return all
}

// SharesLetters says whether another consumer of the file has dead letters where c has some.
func (f *File) SharesLetters(c *Consumer, target string) bool {
	for _, o := range f.Consumers {
		if o != c && SameLetters(c, o, target) {
			return true
		}
	}
	return false
}

// SameLetters says whether two consumers have their dead letters of that target in one place.
func SameLetters(c, o *Consumer, target string) bool {
	return o != nil && o.DeadLetter != nil && slices.Contains(o.DeadLetter.Targets(), target) && c.broker().sameBroker(o.broker())
}

// beside are the consumers of the file on the same broker as c, with itself, by name.
func (f *File) beside(c *Consumer) (all []*Consumer) {
	for _, name := range slices.Sorted(maps.Keys(f.Consumers)) {
		if o := f.Consumers[name]; o != nil && c.broker().sameBroker(o.broker()) {
			all = append(all, o)
		}
	}
	return all
}
