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
	if !whats[f.What].process {
		undo, err = r.world.Do(f, nil)
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
	case Resize:
		n := 1 + f.N%max(1, r.schedule.Settings.Workers)
		if err := p.c.SetLimits(1, n); err != nil {
			r.book.note("%s: %v", p.name, err) // more than its budget, which is its own
		}
	}
	return undo, err
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

// troubled writes down since when there is trouble, and when it ends, until when.
func (r *run) troubled(f Fault, p *process, undo func()) func() {
	t := trouble{process: p, message: -1, from: time.Now(), until: time.Now()}
	switch f.What {
	case Kill, Steal, Reset, Leader, Restart, Grow:
		if r.kind.Late {
			t.until = t.from.Add(time.Duration(r.schedule.Settings.Lease))
		}
	case Forget:
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
