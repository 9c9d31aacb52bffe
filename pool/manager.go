package pool

import "time"

// nudge lets a loop know, without waiting for it: if it knows already, once is enough.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// manager is the loop that decides: it sees, asks the policy, and does as that says. Only it changes the number of workers. It
// sleeps as long as the policy lets it; idle reports, starvation and new limits wake it.
type manager[T any] struct {
	cfg      *Config[T]
	floor    *floor[T]
	last     time.Duration // when it last looked
	done     int64         // how many messages were by then
	estimate estimate
	pace     pace
	guard    guard
}

// run ends when the pool is over.
func (m *manager[T]) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	m.last = -time.Hour
	rest := time.Duration(0)
	for {
		select {
		case <-m.floor.ending.over:
			return
		case <-m.floor.kick:
			if rest := tick/2 - (m.floor.now() - m.last); rest > 0 { // work that flickers between waiting and not must not drive it
				timer.Reset(rest)
				continue
			}
		case <-timer.C:
		}
		before := m.done
		d := m.step()
		if d.Target != d.From && m.cfg.Observe != nil {
			m.cfg.Observe(d)
		}
		if rest = restAfter(d, rest, m.done-before); d.Next > 0 {
			timer.Reset(max(d.Next, rest))
		} else {
			timer.Stop()
		}
	}
}

// longestRest is how long the manager sleeps at most where the size is fixed and few messages are done meanwhile.
const longestRest = time.Second

// restAfter is how long the manager sleeps at least after a decision, though its policy wants to look sooner, when it slept for
// last before and done messages were finished meanwhile. Where the size is fixed only the estimates are kept up to date: the time
// doubles, up to what these remember, or while there is little to estimate from.
func restAfter(d Decision, last time.Duration, done int64) time.Duration {
	if o := &d.Observation; o.Min != o.Max || o.Workers != o.Max || d.Target != d.From {
		return 0
	}
	most := rateMemory
	if done < keepDone/2 {
		most = longestRest
	}
	return min(max(tick, 2*last), most)
}

// step is one round of the manager.
func (m *manager[T]) step() Decision {
	var pressure Pressure
	if m.cfg.Gauge != nil {
		pressure = m.cfg.Gauge()
	}
	waiting := int64(0)
	if m.cfg.Waiting != nil {
		waiting = m.cfg.Waiting()
	}
	o := m.floor.observe()
	m.last, m.done = o.Now, o.Done
	o.Pressure, o.Waiting = pressure, waiting
	o.Rates = m.estimate.update(&o)
	d := m.cfg.Policy.Step(o)
	d.From, d.Observation = o.Workers, o
	d = m.guard.limit(d)
	if t := max(o.Min, min(o.Max, d.Target)); t != d.Target {
		d = d.instead(t, ReasonLimit)
	}
	d.At, d.Force = time.Now(), d.Force || o.Workers > o.Max
	starving, drained := m.floor.apply(d, &m.pace)
	switch {
	case drained:
		d.Target, d.Next = d.From, 0
	case starving && (d.Next == 0 || !o.starving()):
		d.Next = tick // perhaps only since it looked: nobody else would wake it
	}
	return d
}
