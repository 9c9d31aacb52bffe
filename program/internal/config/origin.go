package config

// Takes says whether messages of a topic or subject are read by a consumer of the file from the same broker as c, as far as the file tells: a durable
// without subjects may read any.
func (f *File) Takes(c *Consumer, topic string) bool {
	for _, o := range f.Consumers {
		if o == nil || !c.Source.sameBroker(o.Source) {
			continue
		}
		if o.Source.takes(topic) || o.Source.NATS != nil && len(o.Source.NATS.Subjects) == 0 {
			return true
		}
	}
	return false
}
