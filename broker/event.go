package broker

// An Event is what an adapter has to say outside of Receive. It comes as an event so that it is never silence.
type Event struct {
	Kind Kind
	// Claim is nil where the event is about the whole source.
	Claim *Claim
	// From: in Gap, the first offset skipped, where messages have a Message.Offset and it is known. In Stalled, the unfinished
	// offset that holds the commit back. Otherwise 0; a broker of other positions names them in Err.
	From int64
	// N: in Gap, how many messages were skipped. In Unconfirmed, how many settles said nil and did not hold. -1: unknown.
	N int64
	// Err is the reason, or what is told. Set in Ended, Down, Unconfirmed, Warning and Notice; may be set elsewhere.
	Err error
}

// A Kind names what happened.
type Kind int

const (
	// Assigned: a claim begins. Receive hands out nothing of it before Observe has returned, so that the engine knows a claim before
	// its messages.
	Assigned Kind = iota + 1
	// Ended: a claim has ended. Sent after Keeper.End. Err is its cause: ErrClosed at a stop, ErrRevoked after an orderly rebalance.
	Ended
	// Down: no contact with the broker, or no progress. It is told when that begins, and while it lasts again, after 2 s at first
	// and then with pauses that double up to a minute. There are never two within a second: one that begins so soon after another is
	// told when the second is over, unless it has ended by then; neither it nor its end is told in that case.
	Down
	// Up: the first success after Open began, or after a Down. A source is ready when it was seen.
	Up
	// Gap: messages were skipped that nobody handled: retention, truncation, purge, recreation, an undecodable batch, a message that
	// was given back and gone by then, or dropped by a broker that pushes.
	Gap
	// Unconfirmed: settles said nil and did not hold, or perhaps did not: a fenced commit, a lease that ran out before the settle
	// arrived, a failed delete. They come again; so it is not said of settles of a topic or stream that is gone, but for acks with
	// outputs (Emitter) that are not stored: those are missed for good. It is said of settles, acks and give-backs, when they are
	// found out, and never in advance.
	Unconfirmed
	// Stalled: intake of a claim stopped because its window of unfinished offsets is full.
	Stalled
	// Warning: foreign settings of a consumer, a session timeout, a MaxAckPending below the workers' need, and the like.
	Warning
	// Notice: something that was chosen, with the reason. It asks nobody to do anything.
	Notice
)

var kindNames = [...]string{Assigned: "assigned", Ended: "ended", Down: "down", Up: "up", Gap: "gap",
	Unconfirmed: "unconfirmed", Stalled: "stalled", Warning: "warning", Notice: "notice"}

// String returns the kind's name in lower case, as it appears in logs.
func (k Kind) String() string {
	if k < Assigned || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}
