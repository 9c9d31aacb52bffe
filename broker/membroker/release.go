package membroker

import (
	"errors"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// An ending is a claim that has ended, and whose partition must still be committed and released where it was the last one.
type ending struct {
	h        *holding
	cs       *claimState // nil: it never began
	last     bool
	p        progress
	outs     emitted
	promised int64 // settles that said nil and are not known to be committed
	due      time.Time
}

// unsaid says that settles do not hold, or perhaps do not.
func (e *ending) unsaid(events *kit.EventQueue, cause error) {
	if e.cs != nil {
		e.h.sh.unconfirmed(e.cs.claim, e.promised, cause)
	}
}

// releases are partitions on their way back to the group. They are the loop's.
type releases struct {
	place   *place
	events  *kit.EventQueue
	figures *figures
	list    []*ending
}

func (r *releases) add(e *ending) { r.list = append(r.list, e) }

// decline gives back a partition that the source does not begin with, for it has stopped: somebody else may have it.
func (r *releases) decline(sh *shared, n notice) {
	r.add(&ending{h: &holding{sh: sh, cur: n.cur, term: n.term, epoch: n.start.epoch}, p: n.start})
}

// tend commits and releases what is due, as long as it is the source's: until by. It returns when to try again.
func (r *releases) tend(now, by time.Time) (next time.Time) {
	rest := r.list[:0]
	for _, e := range r.list {
		if now.Before(e.due) || !r.release(e, now, by) {
			rest = append(rest, e)
			next = earlier(next, e.due)
		}
	}
	r.list = rest
	return next
}

func (r *releases) release(e *ending, now, by time.Time) (done bool) {
	p := r.place
	sent := p.link.operations.Begin()
	err := p.link.exchangeBy(by, func(time.Time) error {
		if e.cs == nil { // without a commit: it would be behind a gap that nobody has heard of
			p.m.decline(e.h.cur, e.h.term)
			r.figures.learnShare(p.m)
			return nil
		}
		if err := p.m.commit(e.h, e.h.term, e.p, e.outs, &p.b.faults); err != nil {
			return err
		}
		p.m.release(e.h.cur, e.h.term)
		r.figures.learnShare(p.m)
		return nil
	})
	if e.cs != nil {
		p.link.operated(broker.Settle, sent, err)
	}
	switch {
	case errors.Is(err, errFenced):
		e.unsaid(r.events, err)
		return true
	case err != nil:
		e.due = now.Add(retryEvery)
		return false
	}
	return true
}

// overtaken gives up those of a partition that is assigned anew: the broker takes no commit of an older term. That is told before
// the next claim begins, for what was not committed comes again under it.
func (r *releases) overtaken(n notice) {
	rest := r.list[:0]
	for _, e := range r.list {
		if e.h.cur == n.cur && e.h.term != n.term {
			e.unsaid(r.events, errFenced)
			continue
		}
		rest = append(rest, e)
	}
	r.list = rest
}

// drop gives up all of them, for the broker does not know us any more.
func (r *releases) drop(cause error) {
	for _, e := range r.list {
		e.unsaid(r.events, cause)
	}
	r.list = nil
}
