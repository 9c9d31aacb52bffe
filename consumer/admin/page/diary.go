package page

import (
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

const (
	keptDecisions = 500
	keptFailures  = 100
	// failuresASecond are written down at most: a consumer whose messages all fail is not held up by that.
	failuresASecond = 20
	// errorBytes of an error are kept.
	errorBytes = 1 << 10
)

// A Decision is a change of the pool's size.
type Decision struct {
	At       time.Time
	From, To int
	Why      string
	Backlog  int
	Busy     int
}

// A Failure is a handler's run that failed.
type Failure struct {
	At         time.Time
	Topic      string
	Partition  int32
	Offset     int64
	ID         string
	Attempt    int32
	Class, Err string
	Verdict    string
}

// A diary has what happened in a consumer: why its pool changed its size, and what failed. Safe for concurrent use.
type diary struct {
	mu        sync.Mutex
	decisions ring[Decision]
	failures  ring[Failure]
	source    string    // what the source warned of last, or why it has no contact
	second    time.Time // in which so many failures were written
	written   int
}

func newDiary() *diary {
	return &diary{decisions: newRing[Decision](keptDecisions), failures: newRing[Failure](keptFailures)}
}

// observe is a consumer.Observer.
func (d *diary) observe(e consumer.Event, now time.Time) {
	switch e := e.(type) {
	case consumer.Scaled:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.decisions.add(Decision{At: e.At, From: e.From, To: e.Target, Why: e.Why(), Backlog: e.Observation.Backlog,
			Busy: e.Observation.Busy})
	case consumer.SourceEvent:
		d.warned(e)
	case consumer.Failed:
		d.failed(e, now)
	}
}

func (d *diary) warned(e consumer.SourceEvent) {
	if e.Kind != broker.Warning && e.Kind != broker.Down || e.Err == nil {
		return
	}
	text := cut(e.Err.Error(), errorBytes) // somebody else's method: not under the lock
	d.mu.Lock()
	defer d.mu.Unlock()
	d.source = text
}

// sourceSaid is what the source warned of last; "" is nothing.
func (d *diary) sourceSaid() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.source
}

func (d *diary) failed(e consumer.Failed, now time.Time) {
	if !d.room(now) {
		return
	}
	m := e.Message
	f := Failure{At: now, Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, ID: m.ID(), Attempt: m.Attempt, Class: e.Class,
		Verdict: e.Verdict.String()}
	if e.Err != nil {
		f.Err = cut(e.Err.Error(), errorBytes) // somebody else's method: not under the lock
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failures.add(f)
}

// room says whether one more failure may be written down in this second.
func (d *diary) room(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := now.Truncate(time.Second); !s.Equal(d.second) {
		d.second, d.written = s, 0
	}
	d.written++
	return d.written <= failuresASecond
}

// newest are up to so many decisions and failures, the newest first.
func (d *diary) newest(decisions, failures int) ([]Decision, []Failure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.decisions.newest(decisions), d.failures.newest(failures)
}
