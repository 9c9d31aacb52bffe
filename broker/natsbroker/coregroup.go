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
	unheard  bool // the server may not know what was subscribed to last; of open, and then of run

	mu      sync.Mutex
	subs    []*nats.Subscription
	again   []*nats.Subscription // of these, what the server refused, until it is tried again
	leaving []leaving
	listed  bool // the server may have a member here: it has not heard that there is none
}

// A leaving is a subscription that is being drained, since its connection was this one.
type leaving struct {
	sub  *nats.Subscription
	over connEpoch
}

// open joins; while the server is away it tries on, until ctx ends.
func (g *queueGroup) open(ctx context.Context) error {
	return kit.Retry(ctx, g.cfg.ReconnectWait, func(ctx context.Context) error {
		err := g.tend(ctx, true)
		if err != nil && ctx.Err() == nil {
			g.events.Lost(err)
		}
		return err
	}, func(err error) bool { return !passing(err) })
}

// run joins and leaves until ctx ends.
func (g *queueGroup) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.look:
		}
		if err := g.tend(ctx, g.wanted()); err != nil && ctx.Err() == nil {
			g.events.Lost(err)
			time.AfterFunc(g.cfg.MaxReconnectWait, g.look.Ring)
		}
	}
}

// tend joins or leaves, and waits until the server has heard of it: until then it has no member here to send anything to.
func (g *queueGroup) tend(ctx context.Context, wanted bool) error {
	asked, nc := time.Now(), g.link.conn()
	over := epochOf(nc)
	if !wanted {
		g.unheard = g.leave() || g.unheard
	} else if err := g.join(nc); err != nil {
		return err
	}
	if !g.unheard || !wanted && !nc.IsConnected() { // it looks again when that is back
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.DialTimeout)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("natsbroker: subscribing: %w", g.cfg.redact(err))
	}
	if g.unheard = !wanted && epochOf(nc) != over; g.unheard { // over which of the two, nobody knows
		g.look.Ring()
		return nil
	}
	if !wanted {
		g.left()
	}
	g.events.Found(asked)
	return nil
}

// join subscribes to what it is not subscribed to: all, or what the server refused, or nothing.
func (g *queueGroup) join(nc *nats.Conn) error {
	subjects := g.leaveRefused()
	if !g.member() {
		g.leave()
		subjects = g.cfg.Subjects
	}
	g.unheard = g.unheard || len(subjects) > 0
	return g.subscribe(nc, subjects)
}

// member says whether subscriptions are there. nats.go renews its own; a new *nats.Conn has none.
func (g *queueGroup) member() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.subs) > 0 && g.subs[0].IsValid()
}

// left says that the server has heard that there is no member here.
func (g *queueGroup) left() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listed = false
}

// lost says that the connection went, and whether the server may have had a member here until then.
func (g *queueGroup) lost() (member bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	member, g.listed = g.listed, len(g.subs) > 0
	return member
}

// forsake ends what was being drained when the connection went. The server may not have heard of that; nats.go subscribes to it
// anew, and does not tell the server when it is drained.
func (g *queueGroup) forsake() {
	nc := g.link.conn()
	up, now := nc != nil && nc.IsConnected(), epochOf(nc)
	var gone []leaving
	g.mu.Lock()
	g.leaving = slices.DeleteFunc(g.leaving, func(l leaving) bool {
		over := !up || l.over != now
		if over {
			gone = append(gone, l)
		}
		return over
	})
	g.mu.Unlock()
	for _, l := range gone {
		_ = l.sub.Unsubscribe() // fails only where it is drained
	}
}

func (g *queueGroup) subscribe(nc *nats.Conn, subjects []string) error {
	for _, subject := range subjects {
		sub, err := nc.QueueSubscribe(subject, g.cfg.Queue, g.arrived)
		if err != nil {
			return fmt.Errorf("natsbroker: subscribing to %q: %w", subject, g.cfg.redact(err))
		}
		// arrived never waits, and it counts what it drops; nats.go's own bound would drop without saying how many.
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return fmt.Errorf("natsbroker: subscribing to %q: %w", subject, g.cfg.redact(err))
		}
		g.mu.Lock()
		g.subs, g.listed = append(g.subs, sub), true
		g.mu.Unlock()
	}
	return nil
}

// leave says whether there was something to leave.
func (g *queueGroup) leave() (some bool) {
	g.mu.Lock()
	subs := g.subs
	g.subs, g.again = nil, nil
	g.mu.Unlock()
	g.unlisten(subs)
	return len(subs) > 0
}

// unlisten ends subscriptions. Those of a *nats.Conn before the present one have ended with it.
func (g *queueGroup) unlisten(subs []*nats.Subscription) {
	nc := g.link.conn()
	over := epochOf(nc)
	g.mu.Lock()
	g.leaving = slices.DeleteFunc(g.leaving, func(l leaving) bool { return !l.sub.IsValid() })
	for _, sub := range subs {
		g.leaving = append(g.leaving, leaving{sub, over})
	}
	g.mu.Unlock()
	for _, sub := range subs {
		unlisten(nc, sub)
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
	g.unlisten(again)
	for _, sub := range again {
		subjects = append(subjects, sub.Subject)
	}
	return subjects
}
