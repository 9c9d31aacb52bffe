package kit

import "time"

// A LeaseClock tells how long a message that the broker leases is certainly here. Each message has one. It counts from when its
// delivery, or the last extension that was answered, was asked for, and not from when the answer came: the broker counts from
// some time between the two, and a process that stood still finds answers in its socket that look fresh. A message that a broker
// pushes answers no question: it counts from the last one whose answer came before it on the same connection. It has no clock of
// its own, and is not safe for concurrent use.
//
//	delivered: LeaseClock from the request → hand out while not Over → extend when Due: Renew or Lose by the answer
//	settled:   not Over: nil, and a give-back may be sent. Over: ErrLost; an ack is sent still, a give-back no more
type LeaseClock struct {
	from   time.Time
	length time.Duration
	lost   bool
}

// NewLeaseClock begins one of a message that came in the answer to what was asked at a time; length is the broker's.
func NewLeaseClock(asked time.Time, length time.Duration) LeaseClock {
	return LeaseClock{from: asked, length: length}
}

// Renew takes note of an answer that says that the message is still here, to an extension that was asked for at a time, or of its
// delivery again. An older one changes nothing.
func (l *LeaseClock) Renew(asked time.Time) {
	if asked.After(l.from) {
		l.from, l.lost = asked, false
	}
}

// Lose takes note of an answer that says that somebody else has the message, to what was asked at a time. An answer to what was
// asked before the last renewal says nothing.
func (l *LeaseClock) Lose(asked time.Time) {
	if !asked.Before(l.from) {
		l.lost = true
	}
}

// Over says whether the broker may have given the message to somebody else.
func (l *LeaseClock) Over(now time.Time) bool { return l.lost || now.Sub(l.from) >= l.length }

// Due says whether to extend: a third of the lease has passed, and it is not over.
func (l *LeaseClock) Due(now time.Time) bool { return now.Sub(l.from) >= l.length/3 && !l.Over(now) }
