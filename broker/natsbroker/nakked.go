package natsbroker

// nakked is the naks that were written, and have to be received before Close returns. They have no receipt, and are never written
// again. That a PING was answered which was sent after them says that they were received, where it went over the same connection,
// and else that they may be lost with theirs. Of what was given back before Stop, and lost, nothing is said: it
// comes again by its ack wait, as Nack promises. All times are of the source's clock. Not safe for concurrent use.
type nakked struct {
	over connEpoch
	at   int64 // when the last ones were written of which nothing is known yet; 0: there are none
	lost int64 // when the last ones were that may be lost; 0: there are none
	mine int64 // when the last of them were that were given back since Stop
}

// written takes that some were.
func (n *nakked) written(over connEpoch, now int64, sinceStop bool) {
	if n.over != over {
		n.disconnected()
	}
	n.over, n.at = over, now
	if sinceStop {
		n.mine = now
	}
}

// heard takes that a PING was answered.
func (n *nakked) heard(p ping) {
	switch {
	case p.at < n.at:
	case p.over == n.over:
		n.at, n.mine = 0, 0
	default:
		n.disconnected()
	}
}

// disconnected takes that their connection is no more.
func (n *nakked) disconnected() {
	n.lost = max(n.lost, n.mine)
	n.at, n.mine = 0, 0
}

// kept says whether the server may keep messages from others whose naks it did not get. It does so for an ack wait at most.
func (n *nakked) kept(now, ackWait int64) bool {
	last := max(n.at, n.lost)
	return last != 0 && now-last < ackWait
}
