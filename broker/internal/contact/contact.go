// Package contact decides when Down and Up are told. An outage is told when it begins, while it lasts with longer and longer
// pauses, and when it ends; of one that begins right behind another the telling waits until it is due, or until it is over.
package contact

import "time"

const (
	// leastPause is the least time between two Downs.
	leastPause = time.Second
	// firstPause is the least time until an outage is told of again; each one after it is twice as long, up to lastPause.
	firstPause = 2 * time.Second
	// lastPause is the longest one.
	lastPause = time.Minute
)

// A Contact is what was told of the contact with a broker. The zero value has told nothing. It has no clock and no lock.
type Contact struct {
	up    bool // Up was told
	down  bool
	since time.Time // when the outage began
	told  bool      // Down was told of this outage
	err   error     // the last reason, of a Down that waits
	last  time.Time // the last Down
	pause time.Duration
}

// Lost takes note of a failure, and says whether to tell Down now. at is when it failed: earlier than now where nobody could tell
// of it until now.
func (c *Contact) Lost(at, now time.Time, err error) (tell bool) {
	if !c.down {
		c.down, c.told, c.since, c.pause = true, false, at, firstPause
	}
	c.err = err
	switch wait := now.Sub(c.last); {
	case !c.told:
		return c.Late(now) != nil
	case wait >= c.pause:
		c.last, c.pause = now, min(2*c.pause, lastPause)
		return true
	}
	return false
}

// Due is when a Down is to be told that waits; zero: none does. Late tells it.
func (c *Contact) Due() time.Time {
	if !c.down || c.told {
		return time.Time{}
	}
	return c.last.Add(leastPause)
}

// Late returns the reason of a Down that waited for long enough; nil: there is none.
func (c *Contact) Late(now time.Time) error {
	if due := c.Due(); due.IsZero() || now.Before(due) {
		return nil
	}
	c.told, c.last = true, now
	return c.err
}

// Found takes note of an answer to what was asked at a time, and says whether to tell Up. What was asked before the outage says
// nothing of now.
func (c *Contact) Found(asked time.Time) (tell bool) {
	if c.down && !asked.After(c.since) {
		return false
	}
	tell = !c.up || c.down && c.told
	c.up, c.down = true, false
	return tell
}
