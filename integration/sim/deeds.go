package sim

import (
	"fmt"
	"time"
)

// fault does one. undo ends what lasts.
func (r *run) fault(f Fault) (undo func(), err error) {
	if err := r.kind.Can(f.What); err != nil {
		return nil, err
	}
	f.Process %= len(r.processes)
	if f.What == Again {
		f.N %= max(1, len(r.book.stored))
	}
	p := r.processes[f.Process]
	r.book.note("fault: %v", f)
	if f.What.OfEngine() {
		return r.command(f, p)
	}
	if f.What == Steal {
		r.steals()
	}
	if f.What == Make { // nothing that is there suffers from it
		r.madeAt = time.Now()
		return r.world.Do(f, nil)
	}
	if !whats[f.What].process {
		undo, err = r.world.Do(f, nil)
		r.dropped(f)
		if f.What == Down && err == nil {
			undo = r.silent.hush(undo)
		}
		return r.troubled(f, nil, undo), err
	}
	if p.hasEnded() || p.isDead() {
		r.book.note("%s is gone", p.name)
		return nil, nil
	}
	if f.What == Kill {
		p.die()
	}
	if undo, err = r.world.Do(f, p.has); err != nil {
		return nil, err
	}
	switch f.What {
	case Kill:
		p.finish("killed")
		err = r.start()
	case Freeze:
		p.freeze()
		thaw := undo
		undo = func() {
			thaw()
			p.thaw()
		}
	case CutTo, CutFrom, CutBoth:
		undo = p.silent.hush(undo)
	}
	return r.troubled(f, p, undo), err
}

// command is a fault of the engine's own.
func (r *run) command(f Fault, p *process) (undo func(), err error) {
	switch f.What {
	case Join:
		if r.alive() < mostProcesses {
			err = r.start()
		}
	case Stop:
		p.finish("told to")
		err = r.start()
	case Leave:
		p.finish("told to")
		if r.alive() == 0 {
			err = r.start()
		}
	case Pause:
		if err = p.c.Pause(); err != nil {
			return nil, fmt.Errorf("pausing %s: %w", p.name, err)
		}
		p.paused++
		undo = func() {
			if p.paused--; p.paused == 0 {
				_ = p.c.Resume()
			}
		}
	case Budget:
		if !p.hasEnded() {
			undo = p.hold(1 + f.N%max(1, r.schedule.Settings.Budget))
		}
	case Sick:
		r.sick.Add(1)
		undo = func() { r.sick.Add(-1) }
	case Limit:
		if p.limits != nil {
			err = p.limits.set(1 + f.N%(2*r.schedule.Settings.AtOnce))
		}
	case Resize:
		n := 1 + f.N%max(1, r.schedule.Settings.Workers)
		if err := p.c.SetLimits(1, n); err != nil {
			r.book.note("%s: %v", p.name, err) // more than its budget, which is its own
		}
	}
	return undo, err
}

// dropped enters what a fault has taken from the inputs.
func (r *run) dropped(f Fault) {
	if f.What != Trim && f.What != Recreate {
		return
	}
	topic, partition := r.schedule.place(f.N)
	gone := r.world.Gone()
	r.book.drop(gone[r.gone:], r.isHeld(topic, partition))
	r.gone = len(gone)
	if f.What == Recreate {
		r.book.renew(topic)
		r.renews()
	}
}

// isHeld says whether a partition was ever somebody's.
func (r *run) isHeld(topic string, partition int32) bool {
	r.ownersMu.Lock()
	defer r.ownersMu.Unlock()
	return r.owners[fmt.Sprintf("%s/%d", topic, partition)] != nil
}

// hold lets the sources of a process have n messages out at most.
func (p *process) hold(n int) (undo func()) {
	for _, s := range p.spies {
		s.hold(n)
	}
	return func() {
		for _, s := range p.spies {
			s.hold(0)
		}
	}
}

// mostProcesses that are joined beyond those that replace others.
const mostProcesses = 5

// alive is how many processes were not told to stop.
func (r *run) alive() (n int) {
	for _, p := range r.processes {
		if p.stopped.IsZero() {
			n++
		}
	}
	return n
}

// isLight says whether a fault alone costs nothing: connections that end, leaders that move, partitions that are added, and a way
// that is cut for so short a time that leases and sessions are safe.
func (r *run) isLight(f Fault) bool {
	switch f.What {
	case Reset, Leader, Grow:
		return true
	case CutTo, CutFrom, CutBoth, CutNode:
		return time.Duration(f.For) <= r.lease()/4
	}
	return false
}

// troubled writes down since when there is trouble, and when it ends, until when.
func (r *run) troubled(f Fault, p *process, undo func()) func() {
	t := trouble{process: p, message: -1, from: time.Now(), until: time.Now(), light: r.isLight(f)}
	switch f.What {
	case Kill, Steal, Reset, Leader, Restart, Grow:
		if r.kind.Late {
			t.until = t.from.Add(time.Duration(r.schedule.Settings.Lease))
		}
	case CutTo, CutBoth:
		t.holds = !loses(f)
	case Freeze:
		t.holds = true
	case Forget:
		t.forgets = true
		t.from = t.from.Add(-time.Duration(f.N) * time.Millisecond)
	case Again:
		t.message, t.until = f.N, t.from.Add(calmFor)
	}
	if !whats[f.What].lasts && !whats[f.What].armed {
		r.book.trouble(t)
		return undo
	}
	return func() {
		if undo != nil {
			undo()
		}
		r.book.note("over: %v", f)
		t.until = time.Now()
		r.book.trouble(t)
	}
}
