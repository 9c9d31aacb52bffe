package natsbroker

// finished remembers the last settled messages by stream sequence and time, so that one whose ack was lost is acked again when it
// comes again, and is not handled again. The time tells apart a message of a stream that was made anew with the same sequences:
// by sequence alone, those would be acked unseen.
//
// Each message has its place by the low bits of its sequence, so a newer one pushes out the one a whole table older. Not safe for
// concurrent use.
type finished struct{ entries []finishedEntry }

type finishedEntry struct {
	seq   uint64
	nanos int64
}

func newFinished(size int) finished {
	if size == 0 {
		return finished{}
	}
	n := 1
	for n < size {
		n <<= 1
	}
	return finished{make([]finishedEntry, n)}
}

func (f finished) add(seq uint64, nanos int64) {
	if len(f.entries) > 0 {
		f.entries[seq&uint64(len(f.entries)-1)] = finishedEntry{seq, nanos}
	}
}

func (f finished) has(seq uint64, nanos int64) bool {
	return len(f.entries) > 0 && f.entries[seq&uint64(len(f.entries)-1)] == finishedEntry{seq, nanos}
}

func (f finished) forget() { clear(f.entries) }
