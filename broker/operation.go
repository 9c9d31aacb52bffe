package broker

import "time"

// An Operation is one request of a source to its broker that is over: an exchange, or what stands for one, whatever number of
// messages it was about. It is for whoever measures how long the broker takes. A request that asks for messages and settles
// others is told once: as Fetch where it may wait at the broker for messages, else as Settle.
type Operation struct {
	Kind OperationKind
	// Took is from sending to the last of the answer. A request for messages waits at the broker while there are none.
	Took time.Duration
	// Err is why it failed, or why the broker refused some of what it was about; nil: it took all.
	Err error
}

// An OperationKind is what an Operation was for.
type OperationKind int

const (
	// Fetch asks for messages.
	Fetch OperationKind = iota + 1
	// Settle says what became of some: acks, a commit, or a transaction as a whole.
	Settle
)

// OperationKinds are all of them.
func OperationKinds() []OperationKind { return []OperationKind{Fetch, Settle} }

var operationNames = [...]string{Fetch: "fetch", Settle: "settle"}

// String returns the kind's name in lower case, as it appears in metrics.
func (k OperationKind) String() string {
	if k < Fetch || int(k) >= len(operationNames) {
		return "unknown"
	}
	return operationNames[k]
}
