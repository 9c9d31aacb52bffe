package sim

import (
	"fmt"
	"time"

	"github.com/longshoremq/longshore/integration/sim/memnet"
)

// sockets are a process's connections on a memnet, and the faults that befall them alone.
type sockets struct{ host *memnet.Host }

// do does a fault of one process's connections.
func (s sockets) do(f Fault) (undo func(), err error) {
	switch f.What {
	case Kill:
		s.host.Kill()
		return nil, nil
	case Freeze: // what arrives meanwhile waits in the kernel
		return s.host.Cut(memnet.Both, ""), nil
	case CutTo:
		return s.cut(f, memnet.Out, ""), nil
	case CutFrom:
		return s.cut(f, memnet.In, ""), nil
	case CutBoth:
		return s.cut(f, memnet.Both, ""), nil
	case Reset:
		s.host.Break("")
		return nil, nil
	case LoseAnswers:
		s.host.LoseAnswers(f.N)
		return func() { s.host.LoseAnswers(0) }, nil
	}
	return nil, fmt.Errorf("the connections of a process know no %q", f.What)
}

// loses says whether what a cut keeps back never arrives. After half of the cuts it does, as TCP sends it again; after the others
// the connections are gone, for what stands between has forgotten them. Which, the schedule says.
func loses(cut Fault) bool { return time.Duration(cut.For)/time.Millisecond%2 == 0 }

// cut keeps back what goes in a direction.
func (s sockets) cut(f Fault, d memnet.Direction, address string) (undo func()) {
	heal := s.host.Cut(d, address)
	return func() {
		if loses(f) {
			s.host.Break(address)
		}
		heal()
	}
}

// weather is what befalls all processes of a world at once, those that join meanwhile, too.
type weather struct {
	net   *memnet.Net
	hosts []*memnet.Host
	away  int // how many faults keep the servers away
	delay time.Duration
}

// latency is how long everything takes on its way: what one end does at an instant the other sees later.
const latency = 100 * time.Microsecond

// join adds a process.
func (w *weather) join(cfg memnet.HostConfig) *memnet.Host {
	h := w.net.Host(cfg)
	h.Away(w.away > 0)
	h.Delay(latency + w.delay)
	w.hosts = append(w.hosts, h)
	return h
}

func (w *weather) apply() {
	for _, h := range w.hosts {
		h.Away(w.away > 0)
		h.Delay(latency + w.delay)
	}
}

// down keeps the servers away, as seen by the processes.
func (w *weather) down() (undo func()) {
	w.away++
	w.apply()
	return func() { w.away--; w.apply() }
}

// slow delays each exchange by d, half of it in each direction.
func (w *weather) slow(d time.Duration) (undo func()) {
	w.delay += d / 2
	w.apply()
	return func() { w.delay -= d / 2; w.apply() }
}
