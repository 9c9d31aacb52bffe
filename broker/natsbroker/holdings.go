package natsbroker

import (
	"sync"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// holdings are the stock behind its lock: each method is one step, and waits for nothing. What those who work on the stock may
// see and change of it has its own type: leaseSide, pinSide, pullSide, watchSide. Safe for concurrent use.
type holdings struct {
	outbox *outbox

	mu    sync.Mutex
	stock stock
}

func newHoldings(cfg *Config, c clock, o *outbox, events *kit.EventQueue, b bells) *holdings {
	h := &holdings{outbox: o, stock: stock{
		cfg: cfg, clock: c, outbox: o, events: events, bells: b, receiver: waiter{bell: b.receive},
		memory: newMemory(cfg.Finished),
	}}
	h.stock.tellDrops = h.tellDropped
	return h
}

func (h *holdings) open(o broker.Options) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stock.ordered = o.Ordered
	h.stock.pulls.gate.SetBudget(o.Budget)
	h.stock.pulls.meter.on = o.Operated != nil
}

// receive hands out. Where it returns nothing and no error, somebody waits for the bell.
func (h *holdings) receive(dst []broker.Message) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.stock.flow.err(); err != nil {
		return 0, err
	}
	n = h.stock.handOut(dst)
	h.stock.receiver.waits = n == 0
	return n, nil
}

func (h *holdings) ack(c *broker.Claim, tokens []uint64) error {
	ses := h.sessionOf(c)
	if ses == nil {
		return errForeign
	}
	h.mu.Lock()
	t := h.stock.ack(ses, tokens)
	h.mu.Unlock()
	h.outbox.rouse()
	return t.Err()
}

func (h *holdings) nack(c *broker.Claim, back []broker.Back) error {
	ses := h.sessionOf(c)
	if ses == nil {
		return errForeign
	}
	h.mu.Lock()
	t := h.stock.nack(ses, back)
	h.mu.Unlock()
	h.outbox.rouse()
	return t.Err()
}

// lapsed says whether the lease of what is out has run out, so that another process may have it.
func (h *holdings) lapsed(c *broker.Claim, token uint64) bool {
	ses := h.sessionOf(c)
	if ses == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := ses.slots.out(token)
	return i != noSlot && h.stock.lapsed(&ses.slots.all[i], h.stock.clock.now())
}

// sessionOf returns the session that c is the claim of; nil when it is none of this source.
func (h *holdings) sessionOf(c *broker.Claim) *session {
	if ses, ok := c.State.(*session); ok && ses.of == h {
		return ses
	}
	return nil
}

// stop ends receiving, and gives back what was not handed out.
func (h *holdings) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.stock
	if s.flow.stopped {
		return
	}
	s.flow.stopped = true
	s.outbox.stopped()
	s.receiver.rouse()
	s.giveBackBuffered()
	s.bells.pull.Ring()
	s.bells.pin.Ring()
}

func (h *holdings) maxDeliveries() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.stock.maxDeliver, 0)
}

func (h *holdings) pause(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.stock
	if s.flow.paused == on {
		return
	}
	s.flow.paused = on
	if on {
		s.giveBackBuffered()
	}
	s.receiver.rouse()
	s.bells.pull.Ring()
	s.bells.pin.Ring()
}

func (h *holdings) setBudget(b broker.Budget) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stock.pulls.gate.SetBudget(b)
	h.stock.receiver.rouse()
	h.stock.wantPull()
}

func (h *holdings) lag() broker.Lag {
	h.mu.Lock()
	defer h.mu.Unlock()
	here, _ := h.stock.pulls.here()
	return h.stock.lag.of(here, h.stock.standsBy(), h.stock.ses == nil || h.stock.ses.pin.group == "")
}

func (h *holdings) floors() []broker.Floor {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stock.floors()
}

// fail ends pulling for good.
func (h *holdings) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stock.fail(err)
}

// lost says that there is no connection.
func (h *holdings) lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stock.pulls.lost()
	h.stock.older = h.stock.came
	// After a restart of the server an id that was not read would be another's. One that was read is nobody's then.
	if ses := h.stock.ses; ses != nil && ses.pin.expect == "" {
		ses.pin.unread = 0
	}
}

// denied says that the server let a settle not through, and how many of them are to be told now.
func (h *holdings) denied() (tell int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stock.denied.happened(h.stock.clock.now())
}

func (h *holdings) closing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stock.flow.closing
}

// fence is Close's: settles say broker.ErrLost from now on. ses is the session that ends by it; nil: there was none. The inboxes
// are to be drained before anything is given back, or it comes to us again.
func (h *holdings) fence() (ses *session, old inboxes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.stock
	s.flow.closing = true
	if s.ses != nil && !s.ses.ended {
		ses = s.ses
		ses.ended = true
	}
	return ses, s.pulls.leaveAll()
}

// giveBackAll gives back what was never settled.
func (h *holdings) giveBackAll(ses *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stock.giveBackAll(ses)
}

// turns says whether one process at a time gets messages, and whether it is this one. With an order and no session, which is so
// while it closes, another one may have the turn.
func (h *holdings) turns() (one, ours bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stock.ses == nil {
		return h.stock.ordered, false
	}
	one = h.stock.ses.pin.group != ""
	return one, one && h.stock.hasTurn()
}

// standsBy says that another process is pinned, or nobody yet.
func (h *holdings) standsBy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stock.standsBy()
}
