package kafkabroker

import "time"

// A doubt is that a commit which got no answer may still arrive, behind later ones. The sequence: the network holds it back; its
// exchange is over and the connection is closed, but its bytes are on their way; the same is committed on another connection, and
// more; then the bytes arrive, and the broker takes them, for the generation is right. The next commit puts it right, but while
// nothing more is finished there is none, and a process that dies then leaves its group behind. So all is committed once more
// when the late one must have arrived. A partition that is given up, and a member that leaves, need none of this: the broker
// refuses a commit of the generation before, or of a member that is gone.
type doubt struct {
	since time.Time // when the first commit without an answer was sent; zero: each has one
	until time.Time // when it has arrived or never will; zero: unknown, for none was answered since
}

// doubtLimit is the longest pause that TCP makes between two tries.
const doubtLimit = 2 * time.Minute

func (d *doubt) unanswered(sent time.Time) {
	if d.since.IsZero() {
		d.since = sent
	}
	d.until = time.Time{}
}

// answered says that the network works again. TCP's pauses between tries double, so what it holds comes within as long again as
// the silence was.
func (d *doubt) answered(now time.Time, least time.Duration) {
	if !d.since.IsZero() && d.until.IsZero() {
		d.until = now.Add(min(max(now.Sub(d.since), least), doubtLimit))
	}
}

// over says, once, that it is time to commit again.
func (d *doubt) over(now time.Time) bool {
	if d.until.IsZero() || now.Before(d.until) {
		return false
	}
	*d = doubt{}
	return true
}
