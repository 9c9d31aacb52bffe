package natsbroker

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// lag is what is known of how far the consumer is behind: from its info, and between two of them from the deliveries themselves.
// Not safe for concurrent use.
type lag struct {
	known   bool
	waiting int64
	unacked int64 // delivered to anybody and not settled
	pinned  bool  // somebody is
	paused  bool  // at the server: nothing is delivered
	full    bool  // no more are delivered until some are settled
	at      time.Time
}

func (l *lag) polled(info *jetstream.ConsumerInfo, now time.Time) {
	l.known, l.at = true, now
	l.waiting, l.unacked = int64(info.NumPending), int64(info.NumAckPending)
	l.pinned, l.paused = pinnedNow(info) != "", info.Paused
	l.full = info.Config.MaxAckPending > 0 && info.NumAckPending >= info.Config.MaxAckPending
}

// delivered takes what a delivery's reply subject says: how many were waiting behind it.
func (l *lag) delivered(d delivery) {
	if l.known {
		l.waiting = int64(d.pending)
	}
}

// of is what is told of it, with so many messages here; aside: all of it is another's to do where one is pinned; group: what is
// unsettled is shared with others.
func (l *lag) of(here int, aside, group bool) broker.Lag {
	switch {
	case !l.known:
		return broker.UnknownLag()
	case aside && l.pinned:
		return broker.Lag{Unsettled: int64(here), At: l.at}
	}
	told := broker.Lag{Waiting: l.waiting, Unsettled: l.waiting + max(l.unacked, int64(here)), Group: group, Full: l.full, At: l.at}
	if l.paused {
		told.Held = l.waiting
	}
	return told
}
