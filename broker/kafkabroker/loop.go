package kafkabroker

import (
	"time"

	"github.com/longshoremq/longshore/broker/kit"
)

// A loop lets claims begin and end, and alone tells events while it runs.
type loop struct {
	h      *holdings
	m      membership
	atlas  *atlas
	start  *starter
	fetch  *fetcher
	events *kit.EventQueue
	life   *kit.Life
	bells  *bells
	end    chan struct{} // closed: it shall end
	done   chan struct{} // closed: it has
}

func (x *loop) run() {
	defer close(x.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := sooner(x.step(time.Now()), x.events.Tell())
		wait := time.Hour
		if !next.IsZero() {
			wait = max(0, time.Until(next))
		}
		timer.Reset(wait)
		select {
		case <-x.bells.kick:
		case <-x.events.Ready():
		case <-timer.C:
		case <-x.end:
			return
		}
	}
}

// step does what is due, and returns when to look again.
func (x *loop) step(now time.Time) (next time.Time) {
	x.endClaims(now) // before others begin: of the same partitions, perhaps
	t := x.h.follow(now)
	for _, p := range t.revoke {
		p.keeper.Revoke(p.by)
		signal(x.bells.wake)
	}
	if len(t.release) > 0 {
		x.m.release(t.release)
	}
	x.start.begin(t.lookUp)
	var opened []opening
	for _, b := range t.open {
		if p := x.h.introduce(b, x.atlas.of(b.partitionID).leader); p != nil {
			opened = append(opened, opening{b, p})
		}
	}
	if len(opened) > 0 {
		x.events.Tell() // Assigned comes before anything is handed out
		x.h.admit(opened...)
	}
	x.endClaims(now)
	x.fetch.schedule()
	return x.h.next(now)
}

// endClaims ends the claims that are fenced. Their last commits follow.
func (x *loop) endClaims(now time.Time) {
	for _, e := range x.h.over(now) {
		e.p.keeper.End(e.err)
		x.h.ended(e)
	}
}
