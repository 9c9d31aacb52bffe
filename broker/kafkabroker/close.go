package kafkabroker

import (
	"context"
	"fmt"

	"github.com/longshoremq/longshore/broker"
)

// Close ends everything: fence, end claims, last commit, leave the group. See broker.Source.
func (s *Source) Close(ctx context.Context) error {
	s.mu.Lock()
	first, was := !s.closing, s.phase
	s.closing, s.stopped = true, true
	s.mu.Unlock()
	signal(s.wake)
	if !first {
		<-s.done
		return s.closeErr
	}
	if was == opened {
		s.closeErr = s.shutdown(ctx)
	}
	s.end()
	s.work.Wait()
	s.c.transport.CloseIdleConnections()
	s.mu.Lock()
	s.phase = closed
	s.mu.Unlock()
	close(s.done)
	return s.closeErr
}

func (s *Source) shutdown(ctx context.Context) error {
	close(s.loopEnd)
	<-s.loopDone
	s.buryGone()
	s.mu.Lock()
	var over []*part
	for _, p := range s.parts {
		over = append(over, p)
	}
	s.fenceAll(over)
	for _, b := range s.beginning {
		b.cancel()
	}
	clear(s.beginning)
	s.mu.Unlock()
	err := fmt.Errorf("kafkabroker: %w", broker.ErrClosed)
	for _, p := range over {
		s.conclude(p, err)
	}
	s.events.Tell()
	return s.goodbye(ctx)
}

// goodbye makes the last commits and leaves the group, until ctx ends.
func (s *Source) goodbye(ctx context.Context) error {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	signal(s.flush)
	var err error
	select {
	case <-s.committed:
	case <-ctx.Done():
		err = fmt.Errorf("kafkabroker: closing: %w before the last commit", ctx.Err())
	}
	s.memberEnd()
	<-s.memberWas
	if err == nil {
		if e := s.m.leave(ctx); e != nil {
			err = fmt.Errorf("kafkabroker: closing: %w", e)
		}
	}
	s.end()
	<-s.committed
	s.mu.Lock()
	for _, p := range s.ending {
		s.unconfirmed(p, broker.ErrClosed)
	}
	s.ending = nil
	s.mu.Unlock()
	s.buryGone()
	s.events.Tell()
	return err
}
