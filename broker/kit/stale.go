package kit

// StaleInFlight counts what is out under claims that have ended, by log and offset. It must not be handed out under a later claim
// before it was settled: "never a message that is outstanding here". L names a log for good; one that was made anew is another.
// It is not safe for concurrent use. Make it with make.
type StaleInFlight[L comparable] map[L]StaleOffsets

// StaleOffsets are those of one log, with how often each is out: once for each claim that ended meanwhile. Nil has none.
type StaleOffsets map[int64]int

// Has says whether the offset is out.
func (o StaleOffsets) Has(offset int64) bool { return len(o) > 0 && o[offset] > 0 }

// Of returns the log's, not a copy: what is added and settled later shows in them. A claim may keep them, and reads them under
// the adapter's lock.
func (s StaleInFlight[L]) Of(log L) StaleOffsets {
	o := s[log]
	if o == nil {
		o = make(StaleOffsets)
		s[log] = o
	}
	return o
}

// Forget lets go of a log of which nothing is out, for logs may come and go for ever. Call it when no claim of the log keeps what
// Of returned.
func (s StaleInFlight[L]) Forget(log L) {
	if len(s[log]) == 0 {
		delete(s, log)
	}
}

// Any says whether something of the log is out.
func (s StaleInFlight[L]) Any(log L) bool { return len(s[log]) > 0 }

// Add counts one more.
func (s StaleInFlight[L]) Add(log L, offset int64) { s.Of(log)[offset]++ }

// Settle counts one less. free: the offset is out no more; last: nor is any other of the log.
func (s StaleInFlight[L]) Settle(log L, offset int64) (free, last bool) {
	o := s.Of(log)
	if o[offset]--; o[offset] > 0 {
		return false, false
	}
	delete(o, offset)
	return true, len(o) == 0
}
