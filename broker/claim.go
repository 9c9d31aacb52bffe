package broker

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Claim is the right to handle and settle messages. There is one for each thing that is lost as one: a Kafka partition from
// its assignment to its revocation, a JetStream subscription, a share session.
//
// It goes forward only: open, revoking, ended. It is no context: the engine makes those, from the values of Run's context, its
// own cancel and the claim's end. A partition's next claim may begin while the old one is still revoking (carry-over of what
// runs); running handlers settle through the old one.
//
// All methods are safe for concurrent use.
type Claim struct {
	// Topic is empty where the claim covers several topics.
	Topic string
	// Partition is -1 where there is none.
	Partition int32
	// State is the adapter's own, so that Ack finds its partition without a map.
	State any

	phase    atomic.Uint32
	by       time.Time
	cause    error
	revoke   sync.Once
	end      sync.Once
	revoking chan struct{}
	ended    chan struct{}
	turned   atomic.Pointer[func()]
}

const (
	phaseOpen uint32 = iota
	phaseRevoking
	phaseEnded
)

// A Keeper is the adapter's end of a Claim: who has it can revoke and end the claim.
type Keeper struct{ c *Claim }

// NewClaim begins a claim.
func NewClaim(topic string, partition int32, state any) (*Claim, Keeper) {
	c := &Claim{Topic: topic, Partition: partition, State: state, revoking: make(chan struct{}), ended: make(chan struct{})}
	return c, Keeper{c}
}

// Claim returns the claim that k keeps.
func (k Keeper) Claim() *Claim { return k.c }

// Revoke announces the end. From now on the engine starts nothing of the claim and at once gives back all that no handler runs,
// queued and parked messages too (where order was promised, what stands behind a running message goes back only after that one
// is settled). Running handlers have until by.
//
// The adapter then waits until all that it handed out of the claim is settled, or until by, and never longer. The engine never
// waits for the adapter. Only the first call counts. It does not block.
func (k Keeper) Revoke(by time.Time) {
	if k.c.close(by) {
		k.c.tell()
	}
}

// End ends the claim; cause wraps ErrLost or ErrClosed. It is called when settles already say ErrLost (fence first), with no lock
// held, and before the last commit is put together. Only the first call counts. It does not block.
func (k Keeper) End(cause error) {
	k.c.close(time.Now())
	first := false
	k.c.end.Do(func() {
		k.c.cause = cause
		k.c.phase.Store(phaseEnded)
		close(k.c.ended)
		first = true
	})
	if first {
		k.c.tell()
	}
}

// close makes the claim revoking, and says whether it was open.
func (c *Claim) close(by time.Time) (first bool) {
	c.revoke.Do(func() {
		c.by = by
		c.phase.Store(phaseRevoking)
		close(c.revoking)
		first = true
	})
	return first
}

func (c *Claim) tell() {
	if turned := c.turned.Load(); turned != nil {
		(*turned)()
	}
}

// Follow has turned called when the claim is no longer open, and again when it has ended; at once where that is so already, and
// perhaps once more than that. So who waits for the end of many claims needs no goroutine for each. Revoke and End call it, in
// the adapter's goroutine: it must not block, nor call the source. It is the engine's, and a claim has one.
func (c *Claim) Follow(turned func()) {
	c.turned.Store(&turned)
	if !c.Startable() { // else whoever turns it from now on sees turned
		turned()
	}
}

// Startable says whether handlers may still be started: true while the claim is open. One atomic load, made before each handler
// call. A message may be started just as the claim turns; the adapter counts it as running.
func (c *Claim) Startable() bool { return c.phase.Load() == phaseOpen }

// Revoking is closed when the claim is no longer open.
func (c *Claim) Revoking() <-chan struct{} { return c.revoking }

// By is when running handlers must be done. It blocks until the claim is revoking.
func (c *Claim) By() time.Time { <-c.revoking; return c.by }

// Ended is closed when the claim has ended.
func (c *Claim) Ended() <-chan struct{} { return c.ended }

// Cause is why the claim ended; it wraps ErrLost or ErrClosed. It blocks until then.
func (c *Claim) Cause() error { <-c.ended; return c.cause }
