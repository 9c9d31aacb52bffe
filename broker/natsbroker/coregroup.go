package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

	refusals refusals

	mu    sync.Mutex
	subs  []*nats.Subscription
	again []*nats.Subscription // of these, what the server refused, until it is tried again
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
			g.tell(g.join(g.cfg.Subjects))
		default:
			if again := g.leaveRefused(); len(again) > 0 {
				g.tell(g.join(again))
			}
		}
	}
}

func (g *queueGroup) tell(err error) {
	if err != nil {
		g.events.Lost(g.cfg.redact(err))
		time.AfterFunc(g.cfg.MaxReconnectWait, g.look.Ring)
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

func (g *queueGroup) join(subjects []string) error {
	nc := g.link.conn()
	for _, subject := range subjects {
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
	g.subs, g.again = nil, nil
	g.mu.Unlock()
	drainAll(subs)
}

func drainAll(subs []*nats.Subscription) {
	for _, sub := range subs {
		_ = sub.Drain() // fails only where the connection is gone
	}
}

// refused takes that the server refused to let us listen to a subject, or to so many, and tries again a while later. The
// connection stays: what comes to other subjects would be lost with it.
func (g *queueGroup) refused(err error) {
	g.mu.Lock()
	for _, sub := range g.subs {
		named := strings.Contains(unredacted(err), `"`+sub.Subject+`"`) || errors.Is(err, nats.ErrMaxSubscriptionsExceeded)
		if named && !slices.Contains(g.again, sub) {
			g.again = append(g.again, sub)
		}
	}
	g.mu.Unlock()
	if d := g.refusals.happened(g.cfg.ReconnectWait, time.Now()); d > 0 {
		time.AfterFunc(d, g.look.Ring)
	}
}

// leaveRefused leaves what the server refused, and says which subjects that is.
func (g *queueGroup) leaveRefused() (subjects []string) {
	g.mu.Lock()
	again := g.again
	g.again = nil
	g.subs = slices.DeleteFunc(g.subs, func(sub *nats.Subscription) bool { return slices.Contains(again, sub) })
	g.mu.Unlock()
	drainAll(again)
	for _, sub := range again {
		subjects = append(subjects, sub.Subject)
	}
	return subjects
}
