package kafkabroker

import (
	"context"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A contact takes note of exchanges with brokers while life lasts.
type contact struct {
	life       context.Context
	events     *kit.EventQueue
	operations *kit.Operations
}

// exchange takes note of one that began at a time.
func (x contact) exchange(began time.Time, err error) {
	switch {
	case x.life.Err() != nil:
	case err != nil:
		x.events.Lost(err)
	default:
		x.events.Found(began)
	}
}

// operated tells of a request that began at a time, unless we cut it off.
func (x contact) operated(kind broker.OperationKind, began time.Time, err error) {
	if x.life.Err() == nil {
		x.operations.Tell(kind, began, err)
	}
}

// failed takes note of one that did not work.
func (x contact) failed(err error) { x.exchange(time.Time{}, err) }
