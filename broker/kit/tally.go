package kit

import "github.com/longshoremq/longshore/broker"

// A Tally counts what became of the messages of one Ack or Nack, and makes the error to return for them. The zero value has
// counted none. It is not safe for concurrent use.
type Tally struct {
	// Held were settled in time.
	Held int
	// Lost came too late: the claim has ended, or the lease has run out.
	Lost int
	// Again were settled before.
	Again int
	// Why the lost ones came too late, where the adapter knows. Defaults to nil.
	Why error
}

// Err returns nil where all held; a *broker.LostError where some were lost, whatever else is true; and otherwise
// broker.ErrSettled.
func (t *Tally) Err() error {
	switch {
	case t.Lost > 0:
		return &broker.LostError{N: t.Lost, Why: t.Why}
	case t.Again > 0:
		return broker.ErrSettled
	}
	return nil
}
