package natsbroker

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// deafened says whether the server took, or refused, a subscription: we may not listen to that subject, or not to so many. It
// says so once, and forgets the subscription; nats.go keeps it, and nothing comes for it any more, also when it would be let
// through.
func deafened(err error) bool {
	return errors.Is(err, nats.ErrMaxSubscriptionsExceeded) ||
		errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(unredacted(err), "for Subscription to")
}

// mostRefused bounds the pause until what was refused is tried again. What is refused after twice that counts anew.
const mostRefused = time.Minute

// refusals are what a server refused, and when that is tried again. Safe for concurrent use.
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
	if now.Sub(r.until) > 2*mostRefused {
		r.n = 0
	}
	d := min(max(wait, time.Millisecond)<<min(r.n, 16), mostRefused)
	r.n++
	r.until = now.Add(d)
	return d
}

// next is when what was refused last is tried again.
func (r *refusals) next() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until
}

// renewLater has a connection made anew, in wait at first, after the server refused one of its subscriptions: that subscribes
// again.
//
// Or after a message was too large for the bound that the server told when we connected. It does not tell, to those who are
// connected, that its max_payload was raised: nats.go would go by the old one for as long as the connection lives.
//
// It is done to the connection that was refused last. The sequence: one is refused, and waits; it is lost for another reason; the
// next one is refused the same, while that wait still runs.
func (l *link) renewLater(nc *nats.Conn, wait time.Duration) {
	of := epochOf(nc)
	l.refused.Store(&of)
	d := l.refusals.happened(wait, time.Now())
	if d == 0 {
		return
	}
	time.AfterFunc(d, func() {
		if nc := l.conn(); l.done.Err() == nil && epochOf(nc) == *l.refused.Load() {
			_ = nc.ForceReconnect() // fails where it is closed
		}
	})
}

// unsent takes the error of a publish that did not leave this process.
func (l *link) unsent(err error) {
	if nc := l.conn(); nc != nil && errors.Is(err, nats.ErrMaxPayload) {
		l.renewLater(nc, l.cfg.MaxReconnectWait)
	}
}

// unheard takes a question of that time that this server does not answer, and has another one asked, where there is one, when
// that lasts and is not for want of a right. A server that is cut off from its cluster keeps its clients, and answers none of
// their questions as long as that is so.
func (l *link) unheard(asked time.Time) {
	if !l.unanswered.lasts(asked, time.Now()) {
		return
	}
	nc, d := l.conn(), l.denial.Load()
	if nc != nil && len(nc.Servers()) > 1 && (d == nil || d.at.Before(asked)) {
		_ = nc.ForceReconnect() // fails where it is closed, or is connecting
	}
}

// An unanswered is for how long a server has answered nothing. Safe for concurrent use.
type unanswered struct {
	least time.Duration // after which another one is asked; set before the first question

	mu    sync.Mutex
	since time.Time // the first question without an answer, or when another server was asked; zero: it answers
	n     int       // others that were asked
}

// over: there was an answer.
func (s *unanswered) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.n = time.Time{}, 0
}

// lasts takes a question of that time that has no answer, and says whether another server is to be asked now: after least, and
// then with pauses that double up to a minute.
func (s *unanswered) lasts(asked, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = asked
	}
	if now.Sub(s.since) < min(s.least<<min(s.n, 16), max(s.least, mostRefused)) {
		return false
	}
	s.since = now
	s.n++
	return true
}
