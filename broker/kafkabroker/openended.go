package kafkabroker

import (
	"errors"
	"time"
)

// openLimit is after how many of our own timeouts a transaction of somebody else is told as one that may never end. A broker
// looks for those that took too long each ten seconds, and the timeout is ten by default.
const openLimit = 3

// errOpenEnded: a transaction is open for longer than its process and its coordinator let it be. It may be one that the
// coordinator has lost: see docs/kafka.md.
var errOpenEnded = errors.New("kafkabroker: a partition cannot begin before a transaction ends that may change what is committed")

// openEnded says when it is to be told that a transaction does not end: after limit, and again each time that it took twice as
// long.
type openEnded struct {
	limit time.Duration
	since time.Time // zero: none was seen
}

// seen takes note that it is still open.
func (o *openEnded) seen(now time.Time) (took time.Duration, long bool) {
	if o.since.IsZero() {
		o.since = now
	}
	if took = now.Sub(o.since); took < o.limit {
		return took, false
	}
	o.limit *= 2
	return took.Round(time.Second / 10), true
}
