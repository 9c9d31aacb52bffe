package natsbroker

// How a lease is kept, and when it is known to have run out.
//
// The server counts AckWait from when it sent a message, or from the last +WPI. It does not fence: a -NAK or +WPI by a holder
// whose time is over takes the message away from, or keeps it with, whoever has it now. So both are sent only while the lease
// certainly holds, by the local clock.
//
// What is certain comes from round trips alone. A frozen process finds its socket full of messages that look fresh, and a network
// that heals delivers late. But when a PONG has come, the server had read the PING, and all before it, after the PING was sent;
// and whatever it sent after the PONG, it sent later still. So contact is the time of the last answered PING, a message's lease
// counts from the contact at its receipt, and a round of extensions counts from its own time once a PING sent after it is
// answered.
//
// Receipt is when the socket was read, and what was read before a PONG may be handled after it. The sequence: a process wakes up
// and reads, in one go, deliveries of a minute ago and behind them the PONG to its first PING; the contact moves on while most of
// the deliveries still wait for their turn; they get a lease from now, and are handed out beside the process that has them. So a
// contact counts only once all that was read before its PONG has been handled.

// leases follows when the server last certainly counted from. All times are the source's clock's. It does no I/O. Not safe for
// concurrent use.
type leases struct {
	ackWait int64     // of the consumer as it is
	contact int64     // when the server last answered
	tick    int64     // when the last round of extensions began
	round   uint64    // of extensions
	over    connEpoch // the connection of the last round
}

// begin is the receipt of a message that was not here.
func (l *leases) begin(sl *slot) {
	sl.since = l.tick
	l.again(sl)
}

// again is the receipt of one that is.
func (l *leases) again(sl *slot) { sl.lease, sl.round = l.contact, l.round+1 }

// until is when the lease runs out, as far as is certain.
func (l *leases) until(sl *slot) int64 { return sl.lease + l.ackWait }

// untilNow is the same of what is received now, and not kept.
func (l *leases) untilNow() int64 { return l.contact + l.ackWait }

// expired says whether the server may have given the message to another.
func (l *leases) expired(sl *slot, now int64) bool { return now-sl.lease >= l.ackWait }

// extend begins a round over a connection, and returns the replies to extend: all that is here, and was not here for maxHold.
func (l *leases) extend(t *slots, now, maxHold int64, over connEpoch) []string {
	l.start(now, over)
	if t.used == 0 {
		return nil
	}
	replies := make([]string, 0, t.used)
	for i := range t.all {
		sl := &t.all[i]
		if sl.state == slotFree {
			continue
		}
		if l.expired(sl, now) || sl.forgotten || now-sl.since >= maxHold {
			sl.round = l.round + 1 // not part of this round
			continue
		}
		replies = append(replies, sl.reply)
	}
	return replies
}

// start begins a round in which there is nothing to extend.
func (l *leases) start(now int64, over connEpoch) {
	l.round++
	l.over, l.tick = over, now
}

// A ping is a PING on its way: when it was sent, over which connection, and which round was before it.
type ping struct {
	at    int64
	over  connEpoch
	round uint64
	after bool // the round went over the same connection
}

func (l *leases) ping(now int64, over connEpoch) ping {
	return ping{at: now, over: over, round: l.round, after: l.over == over}
}

// answered takes the PONG, when all that was read before it has been handled.
func (l *leases) answered(p ping) { l.contact = max(l.contact, p.at) }

// extended moves on the leases that a ping's round has extended, and that have not run out by now, when its answer is here.
func (l *leases) extended(t *slots, p ping, now int64) {
	if !p.after {
		return
	}
	for i := range t.all {
		if sl := &t.all[i]; sl.state != slotFree && sl.round <= p.round && !l.expired(sl, now) {
			sl.lease = max(sl.lease, p.at)
		}
	}
}
