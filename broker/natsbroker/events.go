package natsbroker

import (
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/internal/contact"
)

// A word is an event to be told; or, where told is not nil, none: it is closed when those before it were.
type word struct {
	event broker.Event
	told  chan struct{}
}

// herald tells the engine what happens, one event after the other, from one goroutine, so that nobody who has an event has to let
// go of a lock first.
type herald struct {
	observe func(broker.Event)

	mu     sync.Mutex
	queue  []word
	wake   chan struct{}
	closed bool
	reach  contact.Contact
	late   *time.Timer   // for a Down that waits
	said   chan struct{} // closed when the goroutine has ended
}

func newHerald(observe func(broker.Event)) *herald {
	h := &herald{observe: observe, wake: make(chan struct{}, 1), said: make(chan struct{})}
	go h.run()
	return h
}

func (h *herald) run() {
	defer close(h.said)
	for {
		h.mu.Lock()
		events, closed := h.queue, h.closed
		h.queue = nil
		h.mu.Unlock()
		for _, w := range events {
			if w.told != nil {
				close(w.told)
			} else {
				h.observe(w.event)
			}
		}
		if len(events) == 0 {
			if closed {
				return
			}
			<-h.wake
		}
	}
}

// tell queues an event. It does not block.
func (h *herald) tell(e broker.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch now := time.Now(); e.Kind {
	case broker.Down:
		if !h.reach.Lost(now, e.Err) {
			h.await(now)
			return
		}
	case broker.Up:
		if !h.reach.Found(now) {
			return
		}
	}
	h.put(word{event: e})
}

// await lets a Down that waits be told when it is due. It needs h.mu.
func (h *herald) await(now time.Time) {
	if due := h.reach.Due(); !due.IsZero() && h.late == nil && !h.closed {
		h.late = time.AfterFunc(due.Sub(now), h.tellLate)
	}
}

func (h *herald) tellLate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late = nil
	now := time.Now()
	if err := h.reach.Late(now); err != nil {
		h.put(word{event: broker.Event{Kind: broker.Down, Err: err}})
	}
	h.await(now)
}

// flush waits until what was told before was observed.
func (h *herald) flush() {
	w := word{told: make(chan struct{})}
	h.mu.Lock()
	h.put(w)
	h.mu.Unlock()
	select {
	case <-w.told:
	case <-h.said:
	}
}

func (h *herald) put(w word) {
	if h.closed {
		return
	}
	h.queue = append(h.queue, w)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// warn tells a Warning.
func (h *herald) warn(err error) { h.tell(broker.Event{Kind: broker.Warning, Err: err}) }

// close waits until all is told; what comes later is not.
func (h *herald) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
	<-h.said
}
