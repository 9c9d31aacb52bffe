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
func (s *sender) run(ctx context.Context) {
	for {
		select {
		case <-s.stock.send:
		case <-ctx.Done():
			return
		}
		_ = kit.Retry(ctx, retryPause, s.flush, never) // ctx has ended, or all is sent
	}
}

// flush sends all that is there.
func (s *sender) flush(ctx context.Context) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	for {
		cl, es, args := s.stock.parcel()
		if len(es) == 0 {
			return nil
		}
		cmd, _ := s.link.run(ctx, settleScript, cl.of.name, args...)
		trimmed, err := cmd.Int64()
		if isGone(err) {
			err = nil // and cannot come again
		}
		if s.stock.sent(cl, es, trimmed, err); err != nil {
			return err
		}
	}
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
