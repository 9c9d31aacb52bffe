package membroker

import (
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker/kit"
)

// A link is the source's connection to the broker, with what was told to be wrong with it. Safe for concurrent use.
type link struct {
	b      *Broker
	events *kit.EventQueue
	wake   chan struct{} // is signalled when contact is found again
	killed chan struct{} // closed by kill: nothing gets through any more, and nobody waits
	ended  chan struct{} // closed by end: nobody waits any more

	mu     sync.Mutex
	cut    Direction
	thawed chan struct{} // nil: not frozen; closed by thaw
	down   bool          // the last exchange failed
	once   struct{ kill, end sync.Once }
}

func newLink(b *Broker, events *kit.EventQueue, wake chan struct{}) *link {
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

// pass waits as long as the source is frozen, and the broker's delay; then it says whether a request gets through.
func (l *link) pass() error {
	for {
		thawed, cut := l.state()
		if l.isKilled() {
			return errKilled
		}
		if thawed == nil {
			if err := l.latency(); err != nil {
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

func (l *link) latency() error {
	l.b.mu.Lock()
	d := l.b.faults.latency
	l.b.mu.Unlock()
	if d <= 0 {
		return nil
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
func (l *link) exchange(f func(now time.Time) error) error {
	err := l.pass()
	if err == nil {
		if err = l.atBroker(f); l.answer() != nil {
			err = errCut
		}
	}
	l.note(err)
	return err
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
	case errDown, errCut:
		l.turn(true)
		l.events.Lost(err)
	default:
		l.events.Found(time.Now())
		if l.turn(false) {
			signal(l.wake)
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
