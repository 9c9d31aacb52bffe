package membroker

import (
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A link is the source's connection to the broker, with what was told to be wrong with it. Safe for concurrent use.
type link struct {
	b      *Broker
	events *kit.EventQueue
	wake   kit.Bell      // rings when contact is found again
	killed chan struct{} // closed by kill: nothing gets through any more, and nobody waits
	ended  chan struct{} // closed by end: nobody waits any more

	operations kit.Operations

	mu     sync.Mutex
	cut    Direction
	thawed chan struct{} // nil: not frozen; closed by thaw
	down   bool          // the last exchange failed
	once   struct{ kill, end sync.Once }
}

func newLink(b *Broker, events *kit.EventQueue, wake kit.Bell) *link {
	return &link{b: b, events: events, wake: wake, killed: make(chan struct{}), ended: make(chan struct{})}
}

func (l *link) cutOff(d Direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut |= d
}

func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = 0
}

func (l *link) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thawed == nil {
		l.thawed = make(chan struct{})
	}
}

func (l *link) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thawed != nil {
		close(l.thawed)
		l.thawed = nil
	}
}

func (l *link) kill() { l.once.kill.Do(func() { close(l.killed) }) }

func (l *link) end() { l.once.end.Do(func() { close(l.ended) }) }

func (l *link) isKilled() bool {
	select {
	case <-l.killed:
		return true
	default:
		return false
	}
}

// state is what was told.
func (l *link) state() (thawed chan struct{}, cut Direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.thawed, l.cut
}

// pass waits as long as the source is frozen, and the broker's delay, but not beyond by (zero: it has no end); then it says
// whether a request gets through.
func (l *link) pass(by time.Time) error {
	for {
		thawed, cut := l.state()
		if l.isKilled() {
			return errKilled
		}
		if thawed == nil {
			if err := l.latency(by); err != nil {
				return err
			}
			if cut&ToBroker != 0 {
				return errCut
			}
			return nil
		}
		if err := l.await(thawed); err != nil {
			return err
		}
	}
}

// frozen waits for thaw.
func (l *link) frozen() {
	if thawed, _ := l.state(); thawed != nil {
		_ = l.await(thawed)
	}
}

// latency waits for the broker's delay. A request that would take longer than by is given up then.
func (l *link) latency(by time.Time) error {
	l.b.mu.Lock()
	d := l.b.faults.latency
	l.b.mu.Unlock()
	if d <= 0 {
		return nil
	}
	if left := time.Until(by); !by.IsZero() && left < d {
		if err := l.sleep(max(0, left)); err != nil {
			return err
		}
		return errLate
	}
	return l.sleep(d)
}

// sleep waits; nobody who is killed or whose time has ended does.
func (l *link) sleep(d time.Duration) error {
	over := make(chan struct{})
	defer time.AfterFunc(d, func() { close(over) }).Stop()
	return l.await(over)
}

// await waits for c, as sleep does.
func (l *link) await(c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-l.killed:
		return errKilled
	case <-l.ended:
		return errCut
	}
}

// answer says whether what the broker has answered gets back.
func (l *link) answer() error {
	if _, cut := l.state(); cut&FromBroker != 0 {
		return errCut
	}
	return nil
}

// exchange does one request: f runs at the broker, under its lock. It may have run although there is an error, when the answer
// was lost.
func (l *link) exchange(f func(now time.Time) error) error { return l.exchangeBy(time.Time{}, f) }

// exchangeBy does one request that is given up where it is not through by a time, and never gets there then; zero: it is
// waited for.
func (l *link) exchangeBy(by time.Time, f func(now time.Time) error) error {
	err := l.pass(by)
	if err == nil {
		if err = l.atBroker(f); l.answer() != nil {
			err = errCut
		}
	}
	l.note(err)
	return err
}

// reach finds out whether the broker answers.
func (l *link) reach() error { return l.exchange(func(time.Time) error { return nil }) }

// operated tells of a request that was sent at a time, unless the process was killed.
func (l *link) operated(kind broker.OperationKind, sent time.Time, err error) {
	if err != errKilled {
		l.operations.Tell(kind, sent, err)
	}
}

func (l *link) atBroker(f func(now time.Time) error) error {
	now := time.Now()
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.b.faults.down {
		return errDown
	}
	return f(now)
}

// note takes note of contact lost and found. Any answer is contact.
func (l *link) note(err error) {
	switch err {
	case errKilled:
	case errDown, errCut, errLate:
		l.turn(true)
		l.events.Lost(err)
	default:
		l.events.Found(time.Now())
		if l.turn(false) {
			l.wake.Ring()
		}
	}
}

// turn says whether the link was down before.
func (l *link) turn(down bool) (was bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, l.down = l.down, down
	return was
}
