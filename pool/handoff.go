package pool

import "time"

// clock reads the time since the pool's start. Reading the monotonic clock alone costs half of time.Now.
type clock struct{ epoch time.Time }

func (c clock) now() time.Duration { return time.Since(c.epoch) }

// handoff brings T's and workers together: each T is in the queue or with a worker. It has no lock. Whom to wake is returned.
type handoff[T any] struct {
	clock  clock
	queue  queue[T]
	crew   crew[T]
	closed bool          // nothing is let in any more
	alert  bool          // the manager sleeps and wants to know of starvation
	kick   chan struct{} // something happened that the manager should see; room for one
}

// fits is how many T's can be let into a class at once: as many as idle workers have not been meant for one that waits (see put),
// and as many as may wait.
func (h *handoff[T]) fits(class int) int {
	return max(0, len(h.crew.idle)-h.queue.items) + h.queue.room(class)
}

// put gives x to an idle worker or the queue, whatever the bound.
func (h *handoff[T]) put(class int, x item[T]) *Worker[T] {
	switch {
	case len(h.crew.idle) == 0:
		h.queue.push(class, x)
		return nil
	case !h.queue.quick:
		return h.crew.give(class, x, h.clock.now())
	}
	h.queue.push(class, x)
	return h.crew.call()
}

// putFront is put for what goes before all that waits.
func (h *handoff[T]) putFront(class int, x item[T]) *Worker[T] {
	if len(h.crew.idle) > 0 {
		return h.crew.give(class, x, h.clock.now())
	}
	h.queue.pushFront(class, x)
	return nil
}

// take puts the next T of the queue into w's hand. Another worker is to be woken where more waits. Only when something does.
func (h *handoff[T]) take(w *Worker[T], now time.Duration) (another *Worker[T], admitted waiters[T]) {
	x, class, admitted := h.queue.pop()
	h.crew.begin(w, class, x, now)
	if h.queue.items > 0 && len(h.crew.idle) > 0 {
		another = h.crew.call()
	}
	return another, admitted
}

// relieve has an idle worker come for what a worker that goes would have come back for.
func (h *handoff[T]) relieve() (another *Worker[T]) {
	if h.queue.items > 0 && len(h.crew.idle) > 0 {
		return h.crew.call()
	}
	return nil
}

// starving: work waits and no worker is idle.
func (h *handoff[T]) starving() bool { return h.queue.items > 0 && len(h.crew.idle) == 0 }

// starved wakes a sleeping manager when work waits and no worker is idle.
func (h *handoff[T]) starved() {
	if h.alert && h.starving() {
		h.alert = false
		nudge(h.kick)
	}
}

// refill starts a worker for a slot that became free, if there is anything to do for it.
func (h *handoff[T]) refill() {
	if !h.closed || h.queue.items > 0 {
		h.crew.start()
	}
}

// reopen starts a worker for what was put back after all had gone: nothing that was let in is lost.
func (h *handoff[T]) reopen() {
	if h.crew.live == 0 && h.queue.items > 0 {
		h.crew.start()
	}
}

// drained: nothing is left to do, or to be requeued by who does it.
func (h *handoff[T]) drained() bool { return h.closed && h.queue.items == 0 && h.crew.busy == 0 }

// dismiss sends the idle workers home once nothing is left to do. Until then they stay, for a busy one may requeue.
func (h *handoff[T]) dismiss() (woken *Worker[T]) {
	if !h.drained() {
		return nil
	}
	return h.crew.retire(len(h.crew.idle))
}
