package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// A Shrinker makes a schedule with a finding small.
type Shrinker struct {
	// Try runs a schedule.
	Try func(Schedule) Result
	// Until is when it stops with what it has.
	Until time.Time

	want  string // the likeness that has to stay
	tries int    // how often a candidate is tried before it is given up
	runs  int
}

// Shrink returns the smallest schedule that it found with a finding like the first of found, a result with it, and how many of
// how many runs have it.
func (s *Shrinker) Shrink(from Schedule, found Result) (small Schedule, res Result, hits, of int) {
	s.want = Likeness(found.Findings[0])
	const sample = 12
	for range sample {
		if _, ok := s.once(from); ok {
			hits++
		}
	}
	// So that a candidate as likely as the whole is given up wrongly once in twenty.
	s.tries = min(60, 3*sample/max(1, hits)+1)
	small, res = from, found
	for again := true; again && !s.late(); {
		again = false
		for _, smaller := range candidates(small) {
			if s.late() {
				break
			}
			if r, ok := s.has(smaller); ok {
				small, res, again = smaller, r, true
				break
			}
		}
	}
	return small, res, hits, sample
}

func (s *Shrinker) late() bool { return time.Now().After(s.Until) }

// has tries a candidate often enough.
func (s *Shrinker) has(c Schedule) (Result, bool) {
	for range s.tries {
		if r, ok := s.once(c); ok {
			return r, true
		}
		if s.late() {
			break
		}
	}
	return Result{}, false
}

func (s *Shrinker) once(c Schedule) (Result, bool) {
	s.runs++
	r := s.Try(c)
	i := slices.IndexFunc(r.Findings, func(f string) bool { return Likeness(f) == s.want })
	if i > 0 { // the one that counts stands first
		r.Findings[0], r.Findings[i] = r.Findings[i], r.Findings[0]
	}
	return r, i >= 0
}

// candidates are schedules that are a little smaller, those that save the most first.
func candidates(s Schedule) (all []Schedule) {
	add := func(change func(*Schedule)) {
		c := s.clone()
		change(&c)
		c.tidy()
		if c.String() != s.String() {
			all = append(all, c)
		}
	}
	for size := len(s.Steps) / 2; size >= 1; size /= 2 { // without some of the faults
		for at := 0; at < len(s.Steps); at += size {
			add(func(c *Schedule) {
				for i := at; i < min(at+size, len(c.Steps)); i++ {
					c.Steps[i].Fault = Fault{}
				}
			})
		}
	}
	add(func(c *Schedule) { c.Processes = 1 })
	add(func(c *Schedule) { c.Processes-- })
	for _, act := range slices.Sorted(maps.Keys(s.Handlers)) {
		add(func(c *Schedule) { delete(c.Handlers, act) })
	}
	for _, part := range []int{0, 2} { // of the messages: none of a step, or half of them
		for i := range s.Steps {
			add(func(c *Schedule) {
				if c.Steps[i].Produce > 0 && part > 0 {
					c.Steps[i].Produce /= part
				} else {
					c.Steps[i].Produce = 0
				}
			})
		}
	}
	for i := range s.Steps {
		add(func(c *Schedule) { c.Steps[i].Produce-- })
	}
	plainer(add)
	sooner(s, add)
	return all
}

// plainer takes what is special out of the settings.
func plainer(add func(func(*Schedule))) {
	for _, change := range []func(s *Settings){
		func(s *Settings) { s.Batch, s.ByKey, s.BatchBytes = 0, false, 0 },
		func(s *Settings) { s.BatchBytes = 0 },
		func(s *Settings) { s.ByKey = false },
		func(s *Settings) { s.Levels, s.Strict = 0, s.Strict && s.Topics > 1 },
		func(s *Settings) { s.Strict = false },
		func(s *Settings) { s.Spill = false },
		func(s *Settings) { s.Routes = false },
		func(s *Settings) { s.Letters, s.MakeRoom, s.Routes, s.Oversize = false, false, false, 0 }, // no handler is to see these
		func(s *Settings) { s.MakeRoom = false },
		func(s *Settings) { s.GiveUp = 0 },
		func(s *Settings) { s.Emits, s.Bridge = 0, false },
		func(s *Settings) { s.Emits = min(1, s.Emits) },
		func(s *Settings) { s.Quick = 0 },
		func(s *Settings) { s.Hooks = false },
		func(s *Settings) { s.AtOnce, s.PerSecond = 0, 0 },
		func(s *Settings) { s.Share = false },
		func(s *Settings) { s.Breaker = false },
		func(s *Settings) { s.Dedup = false },
		func(s *Settings) { s.Size, s.Bytes, s.Oversize = 0, 0, 0 },
		func(s *Settings) { s.Oversize = 0 },
		func(s *Settings) { s.Keyless = 0 },
		func(s *Settings) { s.Topics, s.Strict = 1, s.Strict && s.Levels > 1 },
		func(s *Settings) { s.Order, s.MakeRoom = consumer.OrderNone, false },
		func(s *Settings) { s.Lane = 0 },
		func(s *Settings) { s.Timeout = 0 },
		func(s *Settings) { s.Partitions = 1 },
		func(s *Settings) { s.Keys = 1 },
		func(s *Settings) { s.Workers = 1 },
		func(s *Settings) { s.Workers /= 2 },
		func(s *Settings) { s.Prefetch = 0 },
	} {
		add(func(c *Schedule) { change(&c.Settings) })
	}
}

// sooner makes pauses and faults shorter, and times round.
func sooner(s Schedule, add func(func(*Schedule))) {
	shorter := func(d Span) Span {
		for _, unit := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
			if d := Span(time.Duration(d).Truncate(unit)); d > 0 {
				return d
			}
		}
		return 0
	}
	for i, step := range s.Steps {
		add(func(c *Schedule) { c.Steps[i].After = 0 })
		add(func(c *Schedule) { c.Steps[i].After = shorter(step.After) })
		add(func(c *Schedule) { c.Steps[i].Fault.For = shorter(step.Fault.For) })
		add(func(c *Schedule) { c.Steps[i].Fault.Process = 0 })
	}
}

func (s Schedule) clone() Schedule {
	s.Steps, s.Handlers = slices.Clone(s.Steps), maps.Clone(s.Handlers)
	return s
}

// tidy takes out what has no effect, and keeps what is left possible.
func (s *Schedule) tidy() {
	s.Processes = max(1, s.Processes)
	s.Settings.Workers = max(1, s.Settings.Workers)
	var steps []Step
	var after Span
	for _, step := range s.Steps {
		step.Produce = max(0, step.Produce)
		if step.Fault.What == "" && step.Produce == 0 {
			after += step.After // the next step comes when it came
			continue
		}
		step.After += after
		after = 0
		steps = append(steps, step)
	}
	s.Steps = steps
}
