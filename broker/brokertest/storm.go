package brokertest

import (
	"math/rand/v2"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// storm proves that nothing is lost when everything happens at once and at random: processes come, leave and die, claims are
// taken, connections and the broker fail for a while, handlers fail. What was acked with nil by a process that lives does not
// come again. It depends on Harness.Seed; run it with many where time costs nothing.
func storm(w *world) {
	s := &weather{w: w, rnd: rand.New(rand.NewPCG(w.h.Seed, 1))}
	s.arrive()
	s.arrive()
	for range 14 {
		for p := range 4 {
			w.produce(p, s.rnd.IntN(15))
		}
		fault := s.faults()[s.rnd.IntN(len(s.faults()))]
		fault()
		time.Sleep(time.Duration(s.rnd.Int64N(int64(w.lease))) * 2 / 3)
	}
	if w.sys.Up != nil {
		w.sys.Up(w)
	}
	for _, m := range s.here {
		m.mend()
	}
	w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
	w.settled()
	for _, stop := range s.stops {
		stop()
	}
	w.handled()
}

// weather is what the storm does, and to whom.
type weather struct {
	w     *world
	rnd   *rand.Rand
	here  []*member
	stops []func()
}

// faults lists what can be done at the moment; doing nothing is always among it.
func (s *weather) faults() []func() {
	sys := s.w.sys
	fs := []func(){func() {}, s.leave}
	if len(s.here) < 4 {
		fs = append(fs, s.arrive)
	}
	m := s.any()
	add := func(there bool, f func()) {
		if there {
			fs = append(fs, f)
		}
	}
	add(m.p.Kill != nil, s.kill)
	add(m.p.Cut != nil && m.p.Heal != nil, s.cut)
	add(sys.Down != nil && sys.Up != nil, s.down)
	for _, take := range []func(){s.move(sys.Revoke != nil, 0), s.move(sys.Steal != nil, 1), s.move(sys.Bounce != nil, 2)} {
		add(take != nil, take)
	}
	add(sys.FailSettles != nil, func() { sys.FailSettles(s.w, 1+s.rnd.IntN(5)) })
	return fs
}

func (s *weather) any() *member { return s.here[s.rnd.IntN(len(s.here))] }

// arrive starts a process whose handlers fail now and then.
func (s *weather) arrive() {
	m := s.w.process(budget(10+s.rnd.IntN(50), 1<<20), chunk(1+s.rnd.IntN(20)))
	m.open()
	m.receive()
	rnd := rand.New(rand.NewPCG(s.w.h.Seed, uint64(len(s.stops))))
	s.here = append(s.here, m)
	s.stops = append(s.stops, m.handle(func(msg *broker.Message) {
		time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
		if rnd.IntN(10) == 0 {
			_ = m.nack(0, msg.Runs+1, msg)
			return
		}
		_ = m.ack(msg)
	}))
}

// take removes a process from the list; one always stays, by another that comes first.
func (s *weather) take() *member {
	if len(s.here) < 2 {
		s.arrive()
	}
	i := s.rnd.IntN(len(s.here))
	m := s.here[i]
	s.here = append(s.here[:i:i], s.here[i+1:]...)
	m.mend()
	return m
}

func (s *weather) leave() {
	m := s.take()
	s.w.faults.note("%s leaves", m.name)
	m.close()
	s.w.faults.note("%s has left", m.name)
}

func (s *weather) kill() {
	m := s.take()
	m.kill()
}

// cut loses what is sent for a while, at times for longer than the lease.
func (s *weather) cut() {
	m := s.any()
	d := Direction(1 + s.rnd.IntN(3))
	m.p.Cut(d)
	time.Sleep(time.Duration(s.rnd.Int64N(int64(s.w.lease))) * 5 / 4)
	m.p.Heal()
}

func (s *weather) down() {
	s.w.sys.Down(s.w)
	time.Sleep(time.Duration(s.rnd.Int64N(int64(s.w.lease / 2))))
	s.w.sys.Up(s.w)
}

// move takes an open claim, if there is one; nil: it cannot.
func (s *weather) move(can bool, how int) func() {
	if !can {
		return nil
	}
	return func() {
		m := s.any()
		open := m.claims.list(true)
		if len(open) == 0 {
			return
		}
		c := open[s.rnd.IntN(len(open))]
		switch how {
		case 0:
			s.w.sys.Revoke(s.w, c)
		case 1:
			s.w.sys.Steal(s.w, c)
		default:
			s.w.sys.Bounce(s.w, c)
		}
	}
}
