package kit

import (
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Operations tells of requests to whoever measures them: Options.Operated. The zero value tells nobody. After Observe it is
// safe for concurrent use.
type Operations struct{ operated func(broker.Operation) }

// Observe sets who is told: Options.Operated; nil: nobody. It comes before the first request, so in Open.
func (o *Operations) Observe(f func(broker.Operation)) { o.operated = f }

// Begin is the time now, for Tell. Where nobody is told it costs one branch, and is zero.
func (o *Operations) Begin() (sent time.Time) {
	if o.operated != nil {
		sent = time.Now()
	}
	return sent
}

// Tell tells of a request that was sent at a time and is over now. Call it with no lock held. Where nobody is told it costs one
// branch.
func (o *Operations) Tell(kind broker.OperationKind, sent time.Time, err error) {
	if o.operated != nil {
		o.operated(broker.Operation{Kind: kind, Took: time.Since(sent), Err: err})
	}
}
