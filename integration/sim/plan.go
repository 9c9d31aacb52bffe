package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// Plan makes the schedule of a seed for a kind of world.
func Plan(k Kind, seed uint64) Schedule {
	p := planner{rand.New(rand.NewPCG(seed, 7)), k}
	s := Schedule{World: k.Name, Seed: seed, Settings: p.settings(), Processes: 1 + p.IntN(3)}
	if k.EmitsNot == "" {
		s.Settings.Emits = emits(seed)
	}
	bridges(k, &s.Settings, seed)
	s.Settings.Hooks = hooked(seed)
	s.Settings.Whole = s.Settings.Batch > 0 && whole(seed)
	sizes(&s.Settings, seed)
	s.Settings.BatchBytes = batchBytes(s.Settings, seed)
	s.Settings.Linger = linger(s.Settings, seed)
	s.Handlers = p.handlers(s.Settings)
	left := 30 + p.IntN(150)
	for range 3 + p.IntN(10) {
		step := Step{After: p.span(1500 * time.Millisecond), Produce: min(left, p.IntN(40)), Fault: p.fault(s.Settings)}
		left -= step.Produce
		s.Steps = append(s.Steps, step)
	}
	s.Steps = append(s.Steps, Step{After: p.span(time.Second), Produce: left})
	if s.Settings.Quick = quick(seed); s.Settings.Quick > 0 {
		for i := range s.Steps {
			s.Steps[i].Produce *= 4
		}
	}
	s.Steps = forgetful(p.kind, seed, s.Steps)
	s.Steps = deadly(p.kind, &s.Settings, seed, s.Steps)
	s.Settings.Routes = s.Settings.Letters && routed(seed)
	s.Steps = lacking(s, seed)
	s.Steps = limited(k, &s.Settings, seed, s.Steps)
	s.Steps = edited(k, seed, s.Steps)
	s.Steps = broken(&s.Settings, seed, s.Steps)
	s.Settings.Dedup = s.Settings.Batch == 0 && deduped(seed)
	s.Alone = alone(seed)
	return s
}

// A planner rolls the dice of a seed.
type planner struct {
	*rand.Rand
	kind Kind
}

// span is up to d, in whole milliseconds, so that it reads well.
func (p planner) span(d time.Duration) Span {
	return Span(time.Duration(p.Int64N(int64(d/time.Millisecond))) * time.Millisecond)
}

// oneIn is true once in n times.
func (p planner) oneIn(n int) bool { return p.IntN(n) == 0 }

func (p planner) settings() Settings {
	s := Settings{
		Topics: 1, Partitions: 1 + p.IntN(4), Keys: 1 + p.IntN(12), Attempts: 2 + p.IntN(4), Letters: !p.oneIn(4),
		Order:   []consumer.Order{consumer.OrderNone, consumer.OrderKey, consumer.OrderPartition}[p.IntN(3)],
		Workers: 1 + p.IntN(8), Prefetch: 1 + p.IntN(64),
		Lease: Span(2 * time.Second), RevokeWait: Span(time.Second), Drain: Span(3 * time.Second),
	}
	s.Budget = s.Workers + p.IntN(64)
	if p.oneIn(2) {
		s.Timeout = Span(300 * time.Millisecond)
	}
	if p.oneIn(5) {
		s.Topics = 2
		s.Budget = 2*s.Workers + p.IntN(64)
		s.Strict = p.oneIn(2)
	}
	if p.oneIn(5) {
		s.Levels = 2 + p.IntN(2)
		s.Strict = p.oneIn(2)
	}
	if p.oneIn(3) {
		s.Batch = 2 + p.IntN(6)
		s.ByKey = p.oneIn(2)
		s.Budget += 2 * s.Batch * s.Topics
	}
	if s.Order != consumer.OrderNone && (s.ByKey || p.oneIn(3)) { // a batch has to fit into a lane
		s.Lane = max(2, s.Batch) + p.IntN(8)
	}
	if s.Order == consumer.OrderNone && !p.kind.NoSpill && p.oneIn(3) {
		s.Spill = true
		s.Budget = 2*s.Budget + 16
	}
	if p.oneIn(4) {
		s.Keyless = 1 + p.IntN(100)
	}
	s.MakeRoom = s.Order != consumer.OrderNone && s.Letters && p.oneIn(4)
	if p.oneIn(6) {
		s.GiveUp = Span(100*time.Millisecond) + p.span(2*time.Second)
	}
	s.Assigned = p.kind.Assigns && p.oneIn(2)
	return s
}

// emits is by dice of its own, so that all else of a seed is as it is without.
func emits(seed uint64) int {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 17))}
	if p.oneIn(2) {
		return 0
	}
	return 1 + p.IntN(3)
}

// quick is by dice of its own, too.
func quick(seed uint64) int {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 18))}
	if !p.oneIn(3) {
		return 0
	}
	return 95 + p.IntN(6)
}

// bridges is by dice of its own, too.
func bridges(k Kind, s *Settings, seed uint64) {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 22))}
	if s.Bridge = k.Bridges && p.oneIn(4); s.Bridge {
		s.Emits = 1 + p.IntN(3)
	}
}

// whole is by dice of its own, too.
func whole(seed uint64) bool { return planner{Rand: rand.New(rand.NewPCG(seed, 23))}.oneIn(2) }

// batchBytes has batches be complete with a few messages of the size that they have. By dice of its own, too.
func batchBytes(s Settings, seed uint64) int {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 27))}
	if s.Batch == 0 || !p.oneIn(2) {
		return 0
	}
	return 1 + p.IntN(s.Batch*(5+s.Size))
}

// linger has batches gather for long, so that claims end, and processes stop, while they do. By dice of its own, too.
func linger(s Settings, seed uint64) Span {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 31))}
	if s.Batch == 0 || !p.oneIn(2) {
		return 0
	}
	d := Span(100*time.Millisecond) + p.span(time.Second)
	if s.Order != consumer.OrderNone {
		return d / 4 // each message of a lane lingers alone: hundreds of a partition would not be done in the calm
	}
	return d
}

// hooked is by dice of its own, too.
func hooked(seed uint64) bool { return planner{Rand: rand.New(rand.NewPCG(seed, 19))}.oneIn(3) }

// sizes are by dice of their own, too. A budget of bytes is for a few messages at least.
func sizes(s *Settings, seed uint64) {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 20))}
	if !p.oneIn(3) {
		return
	}
	s.Size = 1 + p.IntN(2000)
	s.Bytes = int64(s.Size * s.Topics * (1 + p.IntN(s.Budget+1)))
	if s.Letters && p.oneIn(2) {
		s.Oversize = 1 + p.IntN(10)
	}
}

// forgetful has a broker that can forget do so again and again, soon after something else happened: else what it forgot is hardly
// ever what counts. By dice of its own, too.
func forgetful(k Kind, seed uint64, steps []Step) (all []Step) {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 21))}
	if k.Can(Forget) != nil || !p.oneIn(6) {
		return steps
	}
	for _, step := range steps {
		all = append(all, step)
		if p.oneIn(2) {
			all = append(all, Step{After: p.span(300 * time.Millisecond), Fault: Fault{What: Forget, N: 1 + p.IntN(300)}})
		}
	}
	return all
}

// deadly has processes die one after the other, so that what they had is suspected of it. By dice of its own, too.
func deadly(k Kind, s *Settings, seed uint64, steps []Step) (all []Step) {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 24))}
	if !k.Suspects || !s.Letters || !p.oneIn(4) {
		return steps
	}
	s.CrashLimit = 1 + p.IntN(2)
	for _, step := range steps {
		all = append(all, step)
		if p.oneIn(2) {
			all = append(all, Step{After: p.span(700 * time.Millisecond), Fault: Fault{What: Kill, Process: p.IntN(8)}})
		}
	}
	return all
}

// alone is by dice of its own, too.
func alone(seed uint64) bool { return planner{Rand: rand.New(rand.NewPCG(seed, 33))}.oneIn(2) }

// routed is by dice of its own, too.
func routed(seed uint64) bool { return planner{Rand: rand.New(rand.NewPCG(seed, 25))}.oneIn(2) }

// lacking has some of the topics that processes publish to be made only while all is under way. By dice of its own, too.
func lacking(s Schedule, seed uint64) []Step {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 26))}
	steps := slices.Clone(s.Steps)
	if !p.oneIn(4) {
		return steps
	}
	for n := range s.makeable() {
		if p.oneIn(2) {
			step := Step{After: p.span(time.Second), Fault: Fault{What: Make, N: n}}
			steps = slices.Insert(steps, p.IntN(len(steps)+1), step)
		}
	}
	return steps
}

// limited has calls be limited, and the limits be changed while they run. By dice of its own, too.
func limited(k Kind, s *Settings, seed uint64, steps []Step) (all []Step) {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 28))}
	s.Share = k.Shares && p.oneIn(2)
	if s.Batch > 0 || !p.oneIn(3) {
		return steps
	}
	s.AtOnce = 1 + p.IntN(2*s.Workers)
	s.PerSecond = leastPerSecond * (1 + p.IntN(10))
	for _, step := range steps {
		all = append(all, step)
		if p.oneIn(4) {
			all = append(all, Step{After: p.span(700 * time.Millisecond), Fault: Fault{What: Limit, Process: p.IntN(8), N: p.IntN(64)}})
		}
	}
	return all
}

// edited has durables be given other settings while they are in use. By dice of its own, too.
func edited(k Kind, seed uint64, steps []Step) []Step {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 32))}
	if k.Can(Edit) != nil || !p.oneIn(4) {
		return steps
	}
	for range 1 + p.IntN(3) {
		step := Step{After: p.span(700 * time.Millisecond), Fault: Fault{What: Edit, N: p.IntN(64)}}
		steps = slices.Insert(slices.Clone(steps), p.IntN(len(steps)+1), step)
	}
	return steps
}

// deduped is by dice of its own, too.
func deduped(seed uint64) bool { return planner{Rand: rand.New(rand.NewPCG(seed, 30))}.oneIn(4) }

// broken has a circuit breaker see what handlers call fail for a while. By dice of its own, too.
func broken(s *Settings, seed uint64, steps []Step) []Step {
	p := planner{Rand: rand.New(rand.NewPCG(seed, 29))}
	if s.Breaker = s.Batch == 0 && p.oneIn(4); !s.Breaker {
		return steps
	}
	for range 1 + p.IntN(2) {
		step := Step{After: p.span(300 * time.Millisecond), Fault: Fault{What: Sick, For: p.span(3 * time.Second)}}
		steps = slices.Insert(slices.Clone(steps), p.IntN(len(steps)+1), step)
	}
	return steps
}

// handlers are mostly good.
func (p planner) handlers(s Settings) map[Act]int {
	h := map[Act]int{}
	for _, a := range acts {
		most := map[Act]int{Error: 12, Later: 8, Slow: 6, Hang: 3, Deaf: 3}[a]
		if n := p.IntN(max(5, most)); n > 0 && !p.oneIn(3) {
			h[a] = n
		}
	}
	if s.Timeout == 0 {
		delete(h, Hang)
	}
	return h
}

// fault chooses one that this world can do.
func (p planner) fault(s Settings) Fault {
	all := 0
	var can []What
	for _, w := range Whats() {
		if p.kind.Can(w) == nil {
			can = append(can, w)
			all += whats[w].weight
		}
	}
	n := p.IntN(all)
	for _, w := range can {
		if n -= whats[w].weight; n < 0 {
			return p.sized(Fault{What: w}, s)
		}
	}
	panic("unreachable: the weights add up")
}

// sized gives a fault its numbers.
func (p planner) sized(f Fault, s Settings) Fault {
	if whats[f.What].process {
		f.Process = p.IntN(4)
	}
	if whats[f.What].lasts {
		f.For = p.span(3 * time.Duration(s.Lease))
	}
	switch {
	case f.What == Delay || f.What == Forget:
		f.N = 1 + p.IntN(300)
	case f.What == FailSettles || f.What == FailPublishes || f.What == LoseAnswers || f.What == Grow:
		f.N = 1 + p.IntN(4)
	case whats[f.What].counts:
		f.N = p.IntN(64)
	}
	return f
}
