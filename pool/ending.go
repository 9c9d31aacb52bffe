package pool

// ending tells those who wait for it that the workers have ended. It has no lock.
type ending struct {
	over  chan struct{} // closed when the last worker has ended after a Drain: manager and scanner end, too
	ended bool          // over is closed
	gone  chan struct{} // closed when the last of those has ended that were started after that, if anybody waits for it
}

// workerLeft: so many are still there, and so many T's; closed: no more is let in.
func (e *ending) workerLeft(closed bool, running, items int) {
	if e.gone != nil && running == 0 {
		close(e.gone)
		e.gone = nil
	}
	if closed && !e.ended && running == 0 && items == 0 {
		e.ended = true
		close(e.over)
	}
}

// rest is closed when those that are running have ended; nil: there are none.
func (e *ending) rest(running int) <-chan struct{} {
	if running > 0 && e.gone == nil {
		e.gone = make(chan struct{})
	}
	return e.gone
}
