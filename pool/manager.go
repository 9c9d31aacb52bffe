package pool

import "time"

// nudge lets a loop know, without waiting for it: if it knows already, once is enough.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// starved wakes a sleeping manager when work waits and no worker is idle. Called with the lock.
func (p *Pool[T]) starved() {
	if p.alert && p.queue.items > 0 && len(p.idle) == 0 {
		p.alert = false
		nudge(p.kick)
	}
}

// manage is the manager's loop: it sees, asks the policy, and does as that says. Only it changes the number of workers. It sleeps
// as long as the policy lets it; idle reports, starvation and new limits wake it.
func (p *Pool[T]) manage() {
	defer p.loopEnded()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	m := manager{}
	for {
		select {
		case <-p.stop:
			return
		case <-p.kick:
		case <-timer.C:
		}
		d := p.step(&m)
		if d.Target != d.From && p.cfg.Observe != nil {
			p.cfg.Observe(d)
		}
		if d.Next > 0 {
			timer.Reset(d.Next)
		} else {
			timer.Stop()
		}
	}
}

// manager is what its goroutine remembers between two steps.
type manager struct {
	estimate estimate
	guard    guard
}

// step is one round of the manager.
func (p *Pool[T]) step(m *manager) Decision {
	var pressure Pressure
	if p.cfg.Gauge != nil {
		pressure = p.cfg.Gauge()
	}
	o := p.observe()
	o.Pressure = pressure
	o.Rates = m.estimate.update(&o)
	d := p.cfg.Policy.Step(o)
	d.From, d.Observation = o.Workers, o
	d = m.guard.limit(d)
	if t := max(o.Min, min(o.Max, d.Target)); t != d.Target {
		d.Target, d.Reason = t, d.Reason+", at the limit"
	}
	d.Force = d.Force || o.Workers > o.Max
	if d.Next == 0 && o.starving() {
		d.Next = tick
	}
	p.apply(d, o.Rates)
	return d
}

// observe takes the Observation, but for what the manager adds.
func (p *Pool[T]) observe() Observation {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	o := Observation{
		Now: now, In: p.in, Done: p.done, Work: p.work, Squares: p.squares,
		Backlog: p.queue.backlog, InHand: p.inHand, Fill: p.queue.fill(),
		Workers: p.live - p.excess, Busy: p.busy, Idle: len(p.idle), Reports: p.reports,
		IdleTimeout: p.cfg.IdleTimeout, Min: p.min, Max: p.max,
		Age: time.Duration(p.busy)*now - p.started,
	}
	o.Full = p.queue.refused || p.queue.blocked > 0 || o.Fill >= 0.9
	p.queue.refused = false
	if p.oldest != nil {
		o.Oldest = now - p.oldest.since
	}
	for w := p.oldest; w != nil && now-w.since >= tick; w = w.newer { // what they reported of what they hold
		n, d := w.n.Load(), time.Duration(w.d.Load())
		o.Done, o.Work, o.InHand, o.Age = o.Done+n, o.Work+d, o.InHand-int(n), o.Age-d
	}
	for o.IdleLong < len(p.idle) && p.idle[o.IdleLong].idleLong {
		o.IdleLong++
	}
	if len(p.idle) > 0 {
		o.LongestIdle = now - p.idle[0].since
	}
	return o
}

// apply makes the workers as many as decided.
func (p *Pool[T]) apply(d Decision, r Rates) {
	p.mu.Lock()
	p.rates, p.alert = r, true
	if d.Target != d.From {
		p.decided++
		p.last = d
	}
	size := p.live - p.excess
	for ; size < d.Target; size++ {
		if p.excess > 0 {
			p.excess--
		} else {
			p.spawn()
		}
	}
	woken := p.retire(min(len(p.idle), max(0, size-d.Target)))
	if size = p.live - p.excess; size > d.Target && d.Force {
		p.excess += size - d.Target
	}
	admitted := p.bind(r)
	p.starved()
	p.mu.Unlock()
	woken.wakeAll()
	admitted.wake()
}

// bind sets the queue's bound in time. Called with the lock.
func (p *Pool[T]) bind(r Rates) (admitted *waiter[T]) {
	if p.cfg.QueueTime == 0 || p.in == 0 {
		return nil
	}
	return nil
}
