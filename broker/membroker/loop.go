package membroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A loop is the source's own goroutine, from Open to Close. It sends settles and heartbeats, lets claims begin and end, and calls
// Observe. It waits for no answer longer than the source's lease holds: whoever has the messages next does not wait either.
type loop struct {
	b        *Broker
	cfg      SourceConfig
	holdings *holdings
	place    *place
	link     *link
	releases *releases
	events   *kit.EventQueue
	figures  *figures
	kick     kit.Bell
	flush    *time.Timer

	closing  chan struct{} // closed by shut
	done     chan struct{} // closed when it has ended
	abortErr error         // why Close gave up; read when the link has ended
	err      error         // Close's; read when done is closed
}

func (l *loop) run() {
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer l.flush.Stop()
	flush := false
	for {
		next, more := l.step(time.Now(), flush)
		if !more {
			return
		}
		flush = false
		timer.Reset(time.Until(next))
		select {
		case <-l.kick:
		case <-l.events.Ready():
		case <-l.place.call:
			l.place.called()
		case <-l.flush.C:
			flush = true
		case <-timer.C:
		}
	}
}

// step does what is due and returns when it must run next.
func (l *loop) step(now time.Time, flush bool) (next time.Time, more bool) {
	l.events.Tell()
	if l.link.isKilled() {
		l.die()
		return next, false
	}
	if l.isClosing() {
		l.err = l.shutdown()
		return next, false
	}
	l.watchLease(now)
	if !now.Before(l.place.beatAt) {
		l.beat(now)
	}
	next = l.place.beatAt
	next = earlier(next, l.endRevoked(now))
	l.holdings.returnPrefetch()
	if flush {
		l.send()
	}
	next = earlier(next, l.holdings.lapses(now))
	next = earlier(next, l.releases.tend(now, l.holdings.lapses(now)))
	next = earlier(next, l.events.Tell())
	return next, true
}

func (l *loop) isClosing() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// beat sends a heartbeat, which extends what is out, and follows what the broker says.
func (l *loop) beat(now time.Time) {
	if l.place.rejoins {
		if contact, err := l.place.rejoin(now); err == nil {
			l.holdings.touched(contact)
		}
		return
	}
	ns, at, err := l.place.beat(l.holdings.lapses(now), l.holdings.extends())
	switch {
	case errors.Is(err, errUnknown):
		l.expelled(errUnknown)
		l.place.beatAt = now
		return
	case err != nil:
		l.place.failed(now)
		return
	}
	l.place.beaten(at)
	l.watchLease(at)
	if l.place.rejoins { // it was silent too long, whatever the broker thinks
		l.place.beatAt = now
		return
	}
	for _, n := range ns {
		l.follow(n)
	}
	l.holdings.learnLag(l.place, len(ns), l.figures, at)
	l.holdings.touched(at)
}

// watchLease notices that there was no contact for a whole lease: what is out may be somebody else's now.
func (l *loop) watchLease(now time.Time) {
	silence := l.holdings.silent(now)
	switch {
	case silence == 0 || l.place.rejoins:
	case l.b.stream == nil:
		l.expelled(fmt.Errorf("no contact for %v", silence))
	default:
		l.holdings.expire()
	}
}

// expelled ends all claims, for the broker does not know us any more, and joins again.
func (l *loop) expelled(cause error) {
	for _, h := range l.holdings.all() {
		l.lose(h, cause, false)
	}
	l.releases.drop(cause)
	l.figures.loseShare()
	l.place.rejoins = true
	l.events.Tell() // before the rejoin, which may take long
}

// lose ends the claims of a holding that is somebody else's already. gone: its log is, so settles do not come again.
func (l *loop) lose(h *holding, cause error, gone bool) {
	over, promised := l.holdings.lose(h, gone)
	for _, cs := range over {
		cs.end(l.events, lostTo(cause))
	}
	h.sh.unconfirmed(over[len(over)-1].claim, promised, cause)
}

var errRecreated = errors.New("the topic was deleted and made again")

// follow does what the broker says.
func (l *loop) follow(n notice) {
	h := l.holdings.of(n.cur)
	switch {
	case n.kind == assigned, n.kind == bounced && h == nil: // its claim has ended by itself, and was not released yet
		l.assigned(n)
	case n.kind == recreated:
		if h != nil {
			l.lose(h, errRecreated, true)
		}
		l.assigned(n) // anew, with nothing remembered
	case h == nil:
	case n.kind == revoked:
		l.revoke(h)
	case n.kind == taken:
		l.lose(h, errFenced, false)
	case n.kind == bounced:
		l.revoke(h)
		l.begin(l.holdings.next(h, n))
	case n.kind == rewound:
		l.holdings.rewind(h, n.offset)
	}
}

func (l *loop) assigned(n notice) {
	l.releases.overtaken(n)
	if l.holdings.stopped() { // no new claims: somebody else may have it
		l.releases.decline(l.holdings.shared, n)
		return
	}
	l.begin(l.holdings.begin(n))
}

// begin tells of a claim first and lets Receive see it then.
func (l *loop) begin(cs *claimState) {
	if cs != nil {
		l.events.Tell()
		l.holdings.admit(cs)
	}
}

// revoke announces the claim's end. Receive hands out nothing of it from here on.
func (l *loop) revoke(h *holding) {
	by := time.Now().Add(l.cfg.RevokeWait)
	if cs := l.holdings.shut(h, by); cs != nil {
		cs.keeper.Revoke(by)
	}
}

var errRevoked = fmt.Errorf("membroker: %w", broker.ErrRevoked)

// endRevoked ends revoked claims: fence, End, then the last commit and the release, which may take several tries. It returns
// when it must look again.
func (l *loop) endRevoked(now time.Time) time.Time {
	ends, next := l.holdings.over(now)
	for _, e := range ends {
		e.cs.end(l.events, errRevoked)
		if e.last {
			l.releases.add(e)
		}
	}
	return next
}

// send sends all settles. What failed is sent again after a while.
func (l *loop) send() {
	l.watchLease(time.Now()) // a heartbeat may have waited until the lease ran out: then nothing of it may be waited for
	bs := l.holdings.collect()
	if len(bs) == 0 {
		return
	}
	var at time.Time
	sent := l.link.operations.Begin()
	err := l.link.exchangeBy(l.holdings.lapses(time.Now()), func(now time.Time) error {
		at = now
		for _, b := range bs {
			b.send(l.place.m, now)
		}
		return nil
	})
	l.link.operated(broker.Settle, sent, refused(bs, err))
	for _, b := range bs {
		if err != nil {
			b.err = err
		}
		if l.holdings.sent(b); b.fenced() {
			l.place.beatAt = time.Time{} // the broker has more to say about it
		}
	}
	if err == nil {
		l.holdings.learnLag(l.place, 0, l.figures, at)
	}
}

// refused is why a send failed, or the first batch in it.
func refused(bs []*batch, err error) error {
	for i := 0; i < len(bs) && err == nil; i++ {
		err = bs[i].err
	}
	return err
}

// shut lets the loop end and waits for it. When ctx ends, it gives up what could not be sent.
func (l *loop) shut(ctx context.Context) error {
	close(l.closing)
	l.kick.Ring()
	select {
	case <-l.done:
	case <-ctx.Done():
		select {
		case <-l.done: // it had ended already: a ctx that is over does not make a failure of that
		default:
			l.abortErr = ctx.Err()
			l.link.end()
			<-l.done
		}
	}
	return l.err
}

var errSourceClosed = fmt.Errorf("membroker: source closed: %w", broker.ErrClosed)

// shutdown is Close's work: fence, end the claims, give back, last commit, leave.
func (l *loop) shutdown() error {
	over, bs := l.holdings.close()
	for _, e := range l.releases.list {
		if e.cs != nil { // else there is nothing to commit: see release
			bs = append(bs, &batch{h: e.h, term: e.h.term, p: e.p, outs: e.outs, promised: e.promised})
		}
	}
	for _, cs := range over {
		cs.end(l.events, errSourceClosed)
	}
	l.figures.loseShare() // the answer to our leaving may get lost
	err := l.events.During(func() error { return l.leave(bs) })
	for _, b := range bs {
		if b.err != nil && len(b.h.claims) > 0 {
			b.h.sh.unconfirmed(b.h.claim().claim, b.promised, b.err)
		}
	}
	l.events.Tell()
	return err
}

// leave sends what is left and leaves the group, by repeated tries until Close's ctx ends.
func (l *loop) leave(bs []*batch) error {
	for {
		if l.holdings.silent(time.Now()) > 0 { // by now somebody else has them
			for _, b := range bs {
				b.backs = nil
			}
		}
		sent := l.link.operations.Begin()
		err := l.link.exchange(func(now time.Time) error {
			for _, b := range bs {
				if b.send(l.place.m, now); b.err != nil && !b.fenced() {
					return b.err
				}
			}
			l.figures.learnFloors(l.place.m)
			l.place.m.leave()
			return nil
		})
		if len(bs) > 0 {
			l.link.operated(broker.Settle, sent, err)
		}
		if err == nil {
			return nil
		}
		switch l.link.sleep(retryEvery) {
		case errKilled:
			return errKilled
		case errCut:
			for _, b := range bs {
				b.err = err
			}
			return fmt.Errorf("membroker: closing: %w (last try: %w)", l.abortErr, err)
		}
	}
}

// die is Kill's: nothing is sent, but whoever waits for the claims must not wait for ever.
func (l *loop) die() {
	over, _ := l.holdings.close()
	for _, cs := range over {
		cs.keeper.End(lostTo(errKilled))
	}
}
