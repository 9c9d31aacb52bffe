package consumer

import (
	"context"
	"sync/atomic"
)

// A State of a Consumer. See the package comment.
type State int32

const (
	// Created: Run was not called yet.
	Created State = iota
	Opening
	Running
	Stopping
	Draining
	Cancelling
	Closing
	Stopped
)

var stateNames = [...]string{"created", "opening", "running", "stopping", "draining", "cancelling", "closing", "stopped"}

// String returns the state's name in lower case, as it appears in logs.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "unknown"
	}
	return stateNames[s]
}

// A life is the state of a consumer, and the context that its handlers live in.
type life struct {
	tell  *teller
	ran   atomic.Bool
	state atomic.Int32
	kill  context.CancelCauseFunc // ends the contexts of all handlers
	ended atomic.Pointer[error]   // what Run returned, where that is an error
}

// begin says whether it is the first time, and returns the parent of all handlers' contexts, which has the values of ctx.
func (l *life) begin(ctx context.Context) (handlers context.Context, first bool) {
	if !l.ran.CompareAndSwap(false, true) {
		return nil, false
	}
	handlers, l.kill = context.WithCancelCause(context.WithoutCancel(ctx))
	return handlers, true
}

// enter goes to the next state.
func (l *life) enter(s State) {
	l.state.Store(int32(s))
	l.tell.tell(StateChanged{s})
}

func (l *life) at() State { return State(l.state.Load()) }

// end is what Run does last: it takes down why it returns, before anybody can see that it is over.
func (l *life) end(err error) {
	if err != nil {
		l.ended.Store(&err)
	}
	l.enter(Stopped)
}
