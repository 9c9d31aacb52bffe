package natsbroker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker/kit"
)

// queueGroup is the part in a queue group of core NATS: it joins and leaves as wanted says. Safe for concurrent use.
type queueGroup struct {
	cfg     *CoreConfig
	link    *link
	events  *kit.EventQueue
	arrived nats.MsgHandler
	wanted  func() bool
	look    kit.Bell

	mu   sync.Mutex
	subs []*nats.Subscription
}

// run joins and leaves until ctx ends.
func (g *queueGroup) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.look:
		}
		switch {
		case !g.wanted():
			g.leave()
		case !g.member():
			g.leave()
			if err := g.join(); err != nil {
				g.events.Lost(g.cfg.redact(err))
				time.AfterFunc(g.cfg.MaxReconnectWait, g.look.Ring)
			}
		}
	}
}

// member says whether subscriptions are there. nats.go renews its own; a new *nats.Conn has none.
func (g *queueGroup) member() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.subs) > 0 && g.subs[0].IsValid()
}

// joined says whether it has subscribed.
func (g *queueGroup) joined() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.subs) > 0
}

func (g *queueGroup) join() error {
	nc := g.link.conn()
	for _, subject := range g.cfg.Subjects {
		sub, err := nc.QueueSubscribe(subject, g.cfg.Queue, g.arrived)
		if err != nil {
			return fmt.Errorf("natsbroker: subscribing to %q: %w", subject, err)
		}
		// arrived never waits, and it counts what it drops; nats.go's own bound would drop without saying how many.
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return fmt.Errorf("natsbroker: subscribing to %q: %w", subject, err)
		}
		g.mu.Lock()
		g.subs = append(g.subs, sub)
		g.mu.Unlock()
	}
	if err := nc.FlushTimeout(g.cfg.DialTimeout); err != nil { // until then, the server has no member here to send anything to
		return fmt.Errorf("natsbroker: subscribing: %w", err)
	}
	return nil
}

func (g *queueGroup) leave() {
	g.mu.Lock()
	subs := g.subs
	g.subs = nil
	g.mu.Unlock()
	for _, sub := range subs {
		_ = sub.Drain() // fails only where the connection is gone
	}
}
