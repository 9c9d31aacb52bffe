package middleware

import "time"

// The states of a circuit.
const (
	stateClosed   = "closed"
	stateOpen     = "open"
	stateHalfOpen = "half-open"
)

// A circuit is what a CircuitBreaker knows of the calls. It has no lock and no clock.
type circuit struct {
	openFor time.Duration
	probes  int

	state    string
	round    int           // of the state: what began in another tells nothing about now
	tally    tally         // of the calls, while it is closed
	underWay int           // calls that were let through and have not returned
	trying   int           // probes of those, of this round
	good     int           // probes of this round that succeeded
	until    time.Time     // when it may be tried again, once it has opened
	since    time.Time     // when it opened, its tries since then passed over; zero: it is closed
	changed  chan struct{} // closed, and replaced, when a waiting call should look again
	news     []string      // states that nobody was told of yet
}

func newCircuit(c BreakerConfig) circuit {
	return circuit{openFor: c.OpenFor, probes: c.Probes, state: stateClosed, changed: make(chan struct{}),
		tally: tally{window: c.Window, least: c.MinCalls, rate: c.FailureRate}}
}

// look has it half-open when it has been open for long enough.
func (x *circuit) look(now time.Time) {
	if x.state == stateOpen && !now.Before(x.until) {
		x.turn(stateHalfOpen, now)
	}
}

func (x *circuit) turn(to string, now time.Time) {
	switch {
	case to == stateClosed:
		x.since = time.Time{}
	case x.state == stateClosed:
		x.since = now
	}
	if to == stateOpen {
		x.until = now.Add(x.openFor)
	}
	x.state, x.trying, x.good = to, 0, 0
	x.round++
	x.tally.clear()
	x.wake()
	x.news = append(x.news, to)
}

// wake has waiting calls look again.
func (x *circuit) wake() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// A pass is leave for one call.
type pass struct {
	round  int
	probe  bool
	begun  time.Time
	waited time.Duration // for this leave; 0: it was there at once
}

// ask is leave for a call, where it may begin now. Else wait is how long until it may be asked for again (0: while a probe is
// under way, nobody knows), and changed is closed when it is worth a look before.
func (x *circuit) ask(now time.Time) (p pass, ok bool, wait time.Duration, changed <-chan struct{}) {
	x.look(now)
	p = pass{round: x.round, probe: x.state != stateClosed, begun: now}
	switch {
	case x.state == stateOpen:
		return p, false, x.until.Sub(now), x.changed
	case x.state == stateHalfOpen && x.trying+x.good >= x.probes:
		return p, false, 0, x.changed
	case x.state == stateHalfOpen:
		x.trying++
	}
	x.underWay++
	return p, true, 0, nil
}

// done takes the result of a call that ends now. after is how long what refused it asks to wait.
func (x *circuit) done(p pass, r result, after time.Duration, now time.Time) {
	together := x.underWay
	x.underWay--
	switch {
	case p.round != x.round:
		return
	case p.probe:
		x.tried(r, now)
		return
	case r == tellsNothing:
		return
	}
	x.tally.add(now, r, now.Sub(p.begun)/time.Duration(together), after)
	if r != succeeded && x.tally.tripped(now) {
		x.turn(stateOpen, now)
	}
}

// tried takes the result of a probe.
func (x *circuit) tried(r result, now time.Time) {
	x.trying--
	switch {
	case r == tellsNothing:
		x.wake() // it leaves its place to another
	case r != succeeded:
		x.turn(stateOpen, now)
	default:
		if x.good++; x.good >= x.probes {
			x.turn(stateClosed, now)
		}
	}
}

// lapse is tried for a probe that failed and has not returned: what it comes to is of another round then.
func (x *circuit) lapse(p pass, now time.Time) {
	if p.round == x.round {
		x.tried(failed, now)
	}
}
