package kafkabroker

import (
	"slices"
	"time"
)

// Lists have a roster's partitions by what may be done with them, so that who is woken looks at those for which there is
// something to do, and not at all there are. Most of many partitions are on their way: they are in a fetch, and in no list.
//
// A partition is in a list where it may be what the list is for. Whether it is, is asked when it is looked at: what is held or
// paused stays where it is.
type lists struct {
	stock    []*part           // with something prefetched, in the order of their turns
	idle     map[int32][]*part // with nothing prefetched, and no fetch under way, by the broker to fetch from
	timed    []*part           // waiting for a time
	draining []*part           // revoked
}

// A listing is where a part stands.
type listing struct {
	listed                   bool // in any: from its turn to its end
	inStock, inIdle, inTimed bool
	idleAt                   int32 // the list that it is in, of those that are idle
}

// enter says that a part may be looked at from now on.
func (l *lists) enter(p *part) {
	p.listed = true
	l.rests(p)
	if !p.heldUntil.IsZero() { // since its claim was told
		l.waits(p)
	}
}

// stocks says that something was prefetched of a part.
func (l *lists) stocks(p *part) {
	if p.listed && !p.inStock {
		p.inStock = true
		l.stock = append(l.stock, p)
	}
}

// rests says that nothing is prefetched of a part. It is told again where a fetch has ended, and where another broker has it.
func (l *lists) rests(p *part) {
	switch node := p.node(); {
	case !p.listed, p.flying, p.cur != nil:
	case p.inIdle && p.idleAt == node:
	default:
		l.leaveIdle(p)
		p.inIdle, p.idleAt = true, node
		l.idle[node] = append(l.idle[node], p)
	}
}

func (l *lists) leaveIdle(p *part) {
	if p.inIdle {
		p.inIdle = false
		l.setIdle(p.idleAt, slices.DeleteFunc(l.idle[p.idleAt], func(other *part) bool { return other == p }))
	}
}

func (l *lists) setIdle(node int32, ps []*part) {
	if l.idle[node] = ps; len(ps) == 0 {
		delete(l.idle, node) // the broker may be gone for good
	}
}

// takes takes those out of the list of a broker that a fetch takes along.
func (l *lists) takes(node int32, ps []*part) {
	for _, p := range ps {
		p.inIdle = false
	}
	l.setIdle(node, slices.DeleteFunc(l.idle[node], func(p *part) bool { return !p.inIdle }))
}

// waits says that a part has a time to wait for.
func (l *lists) waits(p *part) {
	if p.listed && !p.inTimed {
		p.inTimed = true
		l.timed = append(l.timed, p)
	}
}

// rotate is whose turn it is next of those that have something prefetched; nil: nobody's. Asked as often as there are some, it
// has told each.
func (l *lists) rotate() *part {
	for len(l.stock) > 0 {
		p := l.stock[0]
		l.stock[0] = nil
		l.stock = l.stock[1:]
		if p.cur != nil {
			l.stock = append(l.stock, p)
			return p
		}
		p.inStock = false
	}
	return nil
}

// next says whether a hold is over of something that is prefetched, and when to look again for what waits for a time; zero:
// never. It says so once: what it was asked for later than now is to be looked at by then.
func (l *lists) next(now time.Time) (wake bool, next time.Time) {
	l.timed = slices.DeleteFunc(l.timed, func(p *part) bool {
		for _, t := range [...]time.Time{p.heldUntil, p.retryAt} {
			if t.After(now) {
				next = sooner(next, t)
			}
		}
		next = sooner(next, p.keepHeld(now))
		p.inTimed = p.heldUntil.After(now) || p.retryAt.After(now)
		wake = wake || p.cur != nil && !p.heldUntil.After(now)
		return !p.inTimed
	})
	for _, p := range l.draining {
		next = sooner(next, p.by)
	}
	return wake, next
}

// drain lets nothing more of a part be handed out. What is out has time until then.
func (l *lists) drain(p *part, by time.Time) {
	p.stage, p.by = draining, by
	l.draining = append(l.draining, p)
	p.drop()
}

// drained are the parts whose revocation has nothing to wait for any more.
func (l *lists) drained(now time.Time) (ps []*part) {
	for _, p := range l.draining {
		if p.settled() || !now.Before(p.by) {
			ps = append(ps, p)
		}
	}
	return ps
}

// forgets takes a part out that has ended.
func (l *lists) forgets(p *part) {
	p.listed = false
	l.leaveIdle(p)
	is := func(other *part) bool { return other == p }
	l.draining = slices.DeleteFunc(l.draining, is)
	if p.inTimed {
		l.timed, p.inTimed = slices.DeleteFunc(l.timed, is), false
	}
	if p.inStock {
		l.stock, p.inStock = slices.DeleteFunc(l.stock, is), false
	}
}
