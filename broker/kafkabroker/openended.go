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

// hidingLimit is after how long that is told of a transaction which hides what was written behind it: no broker lets one be open
// for longer, unless its transaction.max.timeout.ms was raised. Ours is no measure here: whoever wrote it chose its timeout.
const hidingLimit = 15 * time.Minute

// errHidden: all was read up to a transaction that does not end. What was written behind it is seen by nobody, and no lag has it.
var errHidden = errors.New("kafkabroker: messages are not seen before a transaction ends that is open below them")

// hiding is a transaction at which all that can be read of a partition is read.
type hiding struct {
	openEnded
	at int64 // where it begins
}

// stands notes where an answer finds it standing, and says so where that takes too long.
func (h *hiding) stands(at int64, now time.Time) (took time.Duration, long bool) {
	if h.since.IsZero() || h.at != at {
		*h = hiding{openEnded{limit: hidingLimit}, at}
	}
	return h.seen(now)
}
