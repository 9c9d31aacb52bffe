package pool

import (
	"math"
	"time"
)

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
	m := manager{last: -time.Hour}
	for {
		select {
		case <-p.stop:
			return
		case <-p.kick:
			if rest := tick/2 - (p.now() - m.last); rest > 0 { // work that flickers between waiting and not must not drive it
				timer.Reset(rest)
				continue
			}
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
	last     time.Duration // when it last looked
	estimate estimate
	pace     pace
	guard    guard
}

// step is one round of the manager.
func (p *Pool[T]) step(m *manager) Decision {
	var pressure Pressure
	if p.cfg.Gauge != nil {
		pressure = p.cfg.Gauge()
	}
	waiting := int64(-1)
	if p.cfg.Waiting != nil {
		waiting = p.cfg.Waiting()
	}
	o := p.observe()
	m.last = o.Now
	o.Pressure, o.Waiting = pressure, waiting
	o.Rates = m.estimate.update(&o)
	d := p.cfg.Policy.Step(o)
	d.From, d.Observation = o.Workers, o
	d = m.guard.limit(d)
	if t := max(o.Min, min(o.Max, d.Target)); t != d.Target {
		d = d.instead(t, ReasonLimit)
	}
	d.Force = d.Force || o.Workers > o.Max
	starving, drained := p.apply(d, m)
	switch {
	case drained:
		d.Target, d.Next = d.From, 0
	case starving && (d.Next == 0 || !o.starving()):
		d.Next = tick // perhaps only since it looked: nobody else would wake it
	}
	return d
}

// observe takes the Observation, but for what the manager adds.
func (p *Pool[T]) observe() Observation {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	o := Observation{
		Now: now, In: p.in, Done: p.done, Work: p.work, Squares: p.squares, Refused: p.refused,
		Backlog: p.queue.backlog, Expected: p.expected, InHand: p.inHand, Fill: p.queue.fill(),
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

// apply makes the workers as many as decided, and says whether work waits now with no worker idle. A drained pool needs no
// workers.
func (p *Pool[T]) apply(d Decision, m *manager) (starving, drained bool) {
	p.mu.Lock()
	if p.drained() {
		p.mu.Unlock()
		return false, true
	}
	p.rates = d.Observation.Rates
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
	admitted := p.tune(&m.pace)
	starving = p.queue.items > 0 && len(p.idle) == 0
	p.alert = !starving // else it looks again by the clock
	p.mu.Unlock()
	woken.wakeAll()
	admitted.wake()
	return starving, false
}

// quickTime is how long a T may take at most on average for workers to be called one by one: about what it costs to wake one.
const quickTime = 5 * time.Microsecond

// pace is how fast T's, not messages, are handled.
type pace struct {
	at            time.Duration
	handled       int64
	work          time.Duration
	rate, time, n float64 // T's per second; decaying sums of handler time and T's
}

// update takes the totals as of now.
func (c *pace) update(now time.Duration, handled int64, work time.Duration) {
	dt := (now - c.at).Seconds()
	if now-c.at < tick/2 {
		return
	}
	n, d := float64(handled-c.handled), (work - c.work).Seconds()
	keep := math.Exp(-n / keepDone)
	c.n, c.time = c.n*keep+n, c.time*keep+d
	c.rate += weight(dt, drainTime) * (n/dt - c.rate)
	c.at, c.handled, c.work = now, handled, work
}

// quick: T's take less than quickTime each, with a doubling of that before it is no longer so.
func (c *pace) quick(was bool) bool {
	most := quickTime.Seconds()
	if was {
		most *= 2
	}
	return c.n >= keepDone/2 && c.time < c.n*most
}

// bound is how many T's a class may hold.
func (c *pace) bound(most, least int, in time.Duration) int {
	if in == 0 {
		return most
	}
	return min(most, max(least, int(min(1e9, c.rate*in.Seconds()))))
}

// slackTime is how long a submitter may sleep while places become free: short enough not to matter beside what the queue holds.
const slackTime = time.Millisecond

// slack is how many places should be free before a submitter is woken: what is taken in slackTime, at most half of all.
func (c *pace) slack(bound int) int {
	return min(bound/2, int(min(1e9, c.rate*slackTime.Seconds())))
}

// tune sets what follows from the pace: how workers are woken, and the queue's bound in time. Called with the lock.
func (p *Pool[T]) tune(c *pace) (admitted waiters[T]) {
	c.update(p.now(), p.handled, p.work)
	p.queue.quick = c.quick(p.queue.quick)
	p.queue.bound = c.bound(p.cfg.Queue, p.cfg.leastBound(p.max), p.cfg.QueueTime)
	p.queue.rate = c.rate
	p.queue.slack = c.slack(p.queue.bound)
	for i := range p.queue.classes {
		admitted.append(p.queue.admit(&p.queue.classes[i]))
	}
	return admitted
}
