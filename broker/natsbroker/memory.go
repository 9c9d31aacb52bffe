package natsbroker

// memory is what is remembered of messages that are not here any more: which are finished, and which were given back. Not safe
// for concurrent use.
type memory struct {
	finished finished
	runs     *runs
}

func newMemory(size int) memory { return memory{newFinished(size), newRuns(size)} }

// settled remembers that a message is done.
func (m *memory) settled(sl *slot) {
	m.finished.add(sl.seq, sl.nanos)
	m.runs.settled(sl.seq, sl.nanos)
}

// givenBack remembers how often a message has failed, and before when it may not come again.
func (m *memory) givenBack(sl *slot, failed int32, due int64) {
	m.runs.put(sl.seq, sl.nanos, failed, due)
}

// forget is for a consumer that is no more: the next one's messages are others.
func (m *memory) forget() {
	m.finished.forget()
	m.runs.forget()
}
