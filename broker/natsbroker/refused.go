package natsbroker

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A server that does not let us listen to a subject, or to so many of them, says so once: at the subscription, or when it was told
// to. It forgets the subscription; nats.go keeps it, and nothing comes for it any more, also when it would be let through again.

// deafened says whether the server took, or refused, a subscription.
func deafened(err error) bool {
	return errors.Is(err, nats.ErrMaxSubscriptionsExceeded) ||
		errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), "for Subscription to")
}

// mostDeaf bounds the pause until what was refused is tried again. Who is refused for longer counts anew.
const mostDeaf = time.Minute

// refusals is when to subscribe again. Safe for concurrent use.
type refusals struct {
	mu    sync.Mutex
	n     int
	until time.Time // the next try
}

// happened counts a refusal, and says in how long to try again; 0: that is already set.
func (r *refusals) happened(wait time.Duration, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.until) {
		return 0
	}
	if now.Sub(r.until) > 2*mostDeaf {
		r.n = 0
	}
	d := min(max(wait, time.Millisecond)<<min(r.n, 16), mostDeaf)
	r.n++
	r.until = now.Add(d)
	return d
}

// listenAgain has a connection made anew a while after the server refused one of its subscriptions: that subscribes again.
func (l *link) listenAgain(nc *nats.Conn) {
	d := l.refusals.happened(l.cfg.ReconnectWait, time.Now())
	if d == 0 {
		return
	}
	of := epochOf(nc)
	time.AfterFunc(d, func() {
		if l.done.Err() == nil && epochOf(l.conn()) == of {
			_ = nc.ForceReconnect() // fails where it is closed, or is connecting
		}
	})
}
