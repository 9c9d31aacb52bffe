package config

import "slices"

// Takes says whether messages of a topic or subject are read by a consumer of the file from the same broker as c, as far as the file tells: a durable
// without subjects may read any.
func (f *File) Takes(c *Consumer, topic string) bool {
	for _, o := range f.Consumers {
		if o == nil || !c.broker().sameBroker(o.broker()) {
			continue
		}
		if o.takes(topic) || slices.ContainsFunc(o.Reads(), func(in Read) bool { return in.NATS != nil && len(in.NATS.Subjects) == 0 }) {
			return true
		}
	}
	return false
}
