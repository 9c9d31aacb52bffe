package redisbroker

import (
	"context"

	"github.com/longshoremq/longshore/broker/kit"
)

// A sender sends acks and give-backs: its goroutine does, and in the end Close, one at a time.
type sender struct {
	*link
	stock *stock
	turn  chan struct{}
}

// run sends what is there, whenever the bell rings, until ctx ends.
func (s *sender) run(ctx context.Context) { s.stock.send.Serve(ctx, retryPause, s.flush) }

// flush sends all that is there.
func (s *sender) flush(ctx context.Context) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	for {
		cl, settles := s.stock.unsent()
		if len(settles) == 0 {
			return nil
		}
		cmd, _ := s.link.run(ctx, settleScript, cl.of.name, settleArgs(settles)...)
		trimmed, err := cmd.Int64()
		if isGone(err) {
			err = nil // and cannot come again
		}
		if s.stock.sent(cl, settles, trimmed, err); err != nil {
			return err
		}
	}
}

// settleArgs is what settleScript is told. The count goes on from a delivery that a handler had, and not from another.
func settleArgs(settles []kit.Settle[string]) (args []any) {
	for _, x := range settles {
		next := x.Count - 1
		if x.Ran {
			next = x.Count
		}
		if x.Acked {
			next = -1
		}
		args = append(args, x.ID, x.Count, next)
	}
	return args
}

// abandon gives up what could not be sent. It waits for its turn: what the goroutine has taken to send once more would be told
// of by nobody.
func (s *sender) abandon(why error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.stock.abandon(why)
}

// leave is the end: it sends what is left, gives back all that is ours, and lets the group forget us.
func (s *sender) leave(ctx context.Context) error {
	err := s.flush(ctx)
	for _, st := range s.stock.streams {
		if err != nil {
			break
		}
		if cmd, _ := s.link.run(ctx, leaveScript, st.name); !isGone(cmd.Err()) {
			err = cmd.Err()
		}
	}
	return err
}
