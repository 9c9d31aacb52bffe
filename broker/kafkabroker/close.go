package kafkabroker

import (
	"context"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Close ends everything: fence, end claims, last commit, leave the group. See broker.Source.
func (s *Source) Close(ctx context.Context) error {
	s.h.stop()
	return s.life.Close(func() error { return s.shutdown(ctx) }, s.c.transport.CloseIdleConnections)
}

func (s *Source) shutdown(ctx context.Context) error {
	close(s.loop.end)
	<-s.loop.done
	s.h.leave(fmt.Errorf("kafkabroker: %w", broker.ErrClosed))
	s.loop.endClaims(time.Now())
	err := s.events.During(func() error { return s.goodbye(ctx) })
	s.life.End()
	<-s.commit.done
	s.h.giveUp(broker.ErrClosed)
	s.loop.endClaims(time.Now())
	s.events.Tell()
	return err
}

// goodbye waits for the last commits and leaves the group, until ctx ends.
func (s *Source) goodbye(ctx context.Context) error {
	var err error
	select {
	case <-s.commit.done:
	case <-ctx.Done():
		err = fmt.Errorf("kafkabroker: closing: %w before the last commit", ctx.Err())
	}
	s.memberEnd()
	<-s.memberWas
	if err != nil {
		return err
	}
	if err := s.m.leave(ctx); err != nil {
		return fmt.Errorf("kafkabroker: closing: %w", err)
	}
	return nil
}
