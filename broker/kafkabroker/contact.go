package kafkabroker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A contact takes note of exchanges with brokers while life lasts.
type contact struct {
	life       context.Context
	events     *kit.EventQueue
	operations *kit.Operations
	failing    *atomic.Uint32 // the lines on which the last exchange failed
}

// A line is a kind of exchanges without which there is no progress, however well all others are answered. While one fails, no
// answer to something else is an Up: with a coordinator away, beside leaders that answer each fetch, Down and Up would be told in
// turns.
type line uint32

const (
	toGroup  line = 1 << iota // our place in the group
	toCommit                  // what is finished, and with transactions their outputs
)

// exchange takes note of one that began at a time.
func (x contact) exchange(began time.Time, err error) {
	switch {
	case x.life.Err() != nil:
	case err != nil:
		x.events.Lost(err)
	case x.failing.Load() == 0:
		x.events.Found(began)
	}
}

// on is exchange of one on a line.
func (x contact) on(l line, began time.Time, err error) {
	if err != nil {
		x.failing.Or(uint32(l))
	} else {
		x.rests(l)
	}
	x.exchange(began, err)
}

// rests says that there is nothing to exchange on a line, so that nothing waits for it.
func (x contact) rests(l line) { x.failing.And(^uint32(l)) }

// operated tells of a request that began at a time, unless we cut it off.
func (x contact) operated(kind broker.OperationKind, began time.Time, err error) {
	if x.life.Err() == nil {
		x.operations.Tell(kind, began, err)
	}
}

// failed takes note of one that did not work.
func (x contact) failed(err error) { x.exchange(time.Time{}, err) }
