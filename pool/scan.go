package pool

import "time"

// held is a T in hand, as the scan found it.
type held[T any] struct {
	w     *Worker[T]
	t     T
	class int
	seq   uint64
	d     time.Duration
}

// scan is the scanner's loop. It sleeps while nothing is in hand.
func (p *Pool[T]) scan() {
	defer p.loopEnded()
	timer := time.NewTimer(p.cfg.Scan)
	defer timer.Stop()
	var hs []held[T]
	for {
		p.mu.Lock()
		p.blind = p.busy == 0
		sleep := p.blind
		p.mu.Unlock()
		if sleep {
			select {
			case <-p.stop:
				return
			case <-p.look:
			}
		}
		timer.Reset(p.cfg.Scan)
		select {
		case <-p.stop:
			return
		case <-timer.C:
		}
		hs = p.hold(hs[:0])
		for _, h := range hs { // without the lock: the callbacks may requeue
			p.tell(h)
		}
		clear(hs)
	}
}

// hold collects what has been in hand for longer than one scan.
func (p *Pool[T]) hold(hs []held[T]) []held[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for w := p.oldest; w != nil && now-w.since >= p.cfg.Scan; w = w.newer {
		hs = append(hs, held[T]{w, w.cur, w.class, w.seq, now - w.since})
	}
	return hs
}

func (p *Pool[T]) tell(h held[T]) {
	if p.cfg.Split != nil && h.d >= 2*p.cfg.Scan {
		if rest, ok := p.cfg.Split(h.t); ok {
			p.requeueFront(h.class, rest)
		}
	}
	if p.cfg.Held == nil || !p.cfg.Held(h.w, h.t, h.d) {
		return
	}
	p.mu.Lock()
	p.abandon(h.w, h.seq)
	woken := p.endIfDrained()
	p.endIfOver()
	p.mu.Unlock()
	woken.wakeAll()
}
