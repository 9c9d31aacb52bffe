package natsbroker

// finished remembers the last settled messages by stream sequence and time, so that one whose ack was lost is acked again when it
// comes again, and is not handled again. The time tells apart a message of a stream that was made anew with the same sequences:
// by sequence alone, those would be acked unseen.
//
// Each message has its place by the low bits of its sequence, so a newer one pushes out the one a whole table older. The table is
// in pages, which are there from the first message on that has its place in one: a consumer that has little to do takes little
// memory. Not safe for concurrent use.
type finished struct {
	pages []*[finishedPage]finishedEntry
}

// finishedPage is how many entries a page has: 16 KiB.
const finishedPage = 1 << 10

type finishedEntry struct {
	seq   uint64
	nanos int64
}

// newFinished remembers size messages at least, in whole pages; none where size is 0.
func newFinished(size int) finished {
	if size == 0 {
		return finished{}
	}
	n := 1
	for n*finishedPage < size {
		n <<= 1
	}
	return finished{make([]*[finishedPage]finishedEntry, n)}
}

func (f finished) add(seq uint64, nanos int64) {
	if len(f.pages) == 0 {
		return
	}
	page := f.page(seq)
	if *page == nil {
		*page = new([finishedPage]finishedEntry)
	}
	(*page)[seq%finishedPage] = finishedEntry{seq, nanos}
}

func (f finished) has(seq uint64, nanos int64) bool {
	if len(f.pages) == 0 {
		return false
	}
	page := *f.page(seq)
	return page != nil && page[seq%finishedPage] == finishedEntry{seq, nanos}
}

// drops lets go of a message with that sequence that was stored at another time, and says whether there was one.
func (f finished) drops(seq uint64, nanos int64) bool {
	if len(f.pages) == 0 {
		return false
	}
	page := *f.page(seq)
	if page == nil {
		return false
	}
	e := &page[seq%finishedPage]
	if e.seq != seq || e.nanos == nanos {
		return false
	}
	*e = finishedEntry{}
	return true
}

// page is where the page is in which a message has its place.
func (f finished) page(seq uint64) **[finishedPage]finishedEntry {
	return &f.pages[seq/finishedPage&uint64(len(f.pages)-1)]
}

// witnesses adds the newest of them up to a floor.
func (f finished) witnesses(w *witnesses, floor uint64) {
	for _, page := range f.pages {
		if page == nil {
			continue
		}
		for _, e := range page {
			if e.seq > 0 && e.seq <= floor {
				w.add(e.seq, e.nanos)
			}
		}
	}
}

func (f finished) forget() { clear(f.pages) }
