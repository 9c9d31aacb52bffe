package membroker

import (
	"math"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// An entry is a message that was delivered and is not settled.
type entry struct {
	due    int64 // Unix nanoseconds: until then it is its holder's, or waits for its delay
	holder int32 // 0: nobody's
	// deliveries counts all, uncounted those that were given back without a failed run.
	deliveries, uncounted, runs int32
	done                        bool
}

// leases is the progress of a group on a stream: what is below floor is settled, what is in [floor, next) has an entry each.
// Guarded by Broker.mu.
type leases struct {
	floor, next int64
	ring        []entry // of offset o: o & (len-1)
	// dueAt is a time before which nothing comes again.
	dueAt int64
	// doneAbove is how many entries are done.
	doneAbove int64
	// journal has the last settles, so that they can be forgotten.
	journal []settledAt
	// nacks has the last messages that were given back, for Nacks.
	nacks []settledAt
	// dropped counts messages that reached MaxDeliveries.
	dropped int64
}

// A settledAt is an offset that was acked or given back, and when: Unix nanoseconds.
type settledAt struct{ offset, at int64 }

// journalSize bounds a journal; it forgets the oldest half.
const journalSize = 1 << 16

// enter adds to a journal.
func enter(journal []settledAt, o, now int64) []settledAt {
	if len(journal) >= journalSize {
		journal = append(journal[:0], journal[journalSize/2:]...)
	}
	return append(journal, settledAt{o, now})
}

func newLeases(first int64) leases {
	return leases{floor: first, next: first, ring: make([]entry, 64), dueAt: math.MaxInt64}
}

func (p *leases) at(o int64) *entry { return &p.ring[o&int64(len(p.ring)-1)] }

// grow makes room for entries up to next+n.
func (p *leases) grow(n int64) {
	need := p.next + n - p.floor
	if need <= int64(len(p.ring)) {
		return
	}
	size := int64(len(p.ring))
	for size < need {
		size *= 2
	}
	ring := make([]entry, size)
	for o := p.floor; o < p.next; o++ {
		ring[o&(size-1)] = *p.at(o)
	}
	p.ring = ring
}

// deliver leases the fresh offsets [next, next+n) to the holder.
func (p *leases) deliver(holder int32, n int64, until int64) {
	p.grow(n)
	for o := p.next; o < p.next+n; o++ {
		*p.at(o) = entry{due: until, holder: holder, deliveries: 1}
	}
	p.next += n
	p.dueAt = min(p.dueAt, until)
}

// skip passes offsets that are not of the group's topics, or are gone.
func (p *leases) skip(to int64) {
	if p.floor == p.next {
		p.floor, p.next = to, to
		return
	}
	p.grow(to - p.next)
	for ; p.next < to; p.next++ {
		*p.at(p.next) = entry{done: true}
		p.doneAbove++
	}
}

// finish marks an offset as settled; false: it was already.
func (p *leases) finish(o int64, now int64) bool {
	if o < p.floor || o >= p.next || p.at(o).done {
		return false
	}
	p.at(o).done = true
	p.doneAbove++
	p.advance()
	if now > 0 {
		p.journal = enter(p.journal, o, now)
	}
	return true
}

func (p *leases) advance() {
	for p.floor < p.next && p.at(p.floor).done {
		p.floor++
		p.doneAbove--
	}
}

// giveBack makes an offset due after the delay. Anybody can: JetStream does not fence either.
func (p *leases) giveBack(o, now, due int64, runs int32) {
	if o < p.floor || o >= p.next || p.at(o).done {
		return
	}
	p.nacks = enter(p.nacks, o, now)
	e := p.at(o)
	if runs <= e.runs {
		e.uncounted++
	}
	e.runs = max(e.runs, runs)
	e.holder, e.due = 0, due
	p.dueAt = min(p.dueAt, due)
}

// extend renews what the holder says it has, unless it has lost it.
func (p *leases) extend(holder int32, has []int64, now, until int64) {
	for _, o := range has {
		if o < p.floor || o >= p.next {
			continue
		}
		if e := p.at(o); !e.done && e.holder == holder && e.due > now {
			e.due = until
		}
	}
}

// again finds up to limit offsets that are due and leases them to the holder. lost are those of them that are gone; nil: none.
func (p *leases) again(l *commitLog, cfg *Config, holder int32, limit int, now time.Time) (out []span, lost *gap) {
	at, until := now.UnixNano(), now.Add(cfg.Lease).UnixNano()
	if p.dueAt > at {
		return nil, nil
	}
	next := int64(math.MaxInt64)
	for o := p.floor; o < p.next; o++ {
		e := p.at(o)
		switch {
		case e.done:
			continue
		case e.due > at:
			next = min(next, e.due)
			continue
		case o < l.first:
			if lost == nil {
				lost = &gap{from: o}
			}
			lost.n++
			e.done = true
			p.doneAbove++
			continue
		case cfg.MaxDeliveries > 0 && int(e.deliveries) >= cfg.MaxDeliveries:
			p.dropped++
			e.done = true
			p.doneAbove++
			continue
		case len(out) == limit:
			next = at
			continue
		}
		e.deliveries++
		e.holder, e.due = holder, until
		next = min(next, until)
		sp, _ := l.read(o, 1, math.MaxInt64)
		sp.attempt, sp.runs = e.attempt(cfg.Attempts), e.runs
		out = append(out, sp)
	}
	p.dueAt = next
	p.advance()
	return out, lost
}

func (e *entry) attempt(trust broker.Trust) int32 {
	if trust == broker.Exact {
		return max(1, e.deliveries-e.uncounted)
	}
	return e.deliveries
}

// forget undoes the settles since a time, as a broker does that was killed before it wrote them down. It returns how many.
func (p *leases) forget(since int64) int {
	var lost []int64
	for _, s := range p.journal {
		if s.at >= since {
			lost = append(lost, s.offset)
		}
	}
	if len(lost) == 0 {
		return 0
	}
	old := *p
	first := p.floor
	for _, o := range lost {
		first = min(first, o)
	}
	p.floor, p.ring = first, make([]entry, len(old.ring))
	n := p.next - first
	p.next = first
	p.grow(n)
	for ; p.next < old.next; p.next++ {
		if p.next < old.floor {
			*p.at(p.next) = entry{done: true}
		} else {
			*p.at(p.next) = *old.at(p.next)
		}
	}
	for _, o := range lost {
		*p.at(o) = entry{deliveries: max(1, p.at(o).deliveries)}
	}
	p.doneAbove = 0
	for o := p.floor; o < p.next; o++ {
		if p.at(o).done {
			p.doneAbove++
		}
	}
	p.journal, p.dueAt = nil, 0
	return len(lost)
}
