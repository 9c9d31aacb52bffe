package config

import (
	"context"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// MostWorkers is how many workers there may be: pool.max, or what the engine has where that is not set.
func (c *Consumer) MostWorkers() int { return c.Engine().WithDefaults().Pool.Max }

// Engine is the engine's Config, as far as the file says it alone: without sources, handlers, publishers and what is made of
// names.
func (c *Consumer) Engine() consumer.Config {
	e := c.Config
	e.Pool, e.Retry = c.Pool.Pool, c.Retry.Retry
	if len(c.Retry.Topics) > 0 {
		e.Retry.Topics = &consumer.RetryTopics{Steps: c.Retry.Topics}
	}
	if c.Batch != nil {
		b := c.Batch.Batch
		e.Batch = &b
	}
	if c.DeadLetter != nil {
		l := *c.DeadLetter
		e.DeadLetter = &l
	}
	return e
}

// What is made of the file later stands in for itself when the rest is checked.
type (
	laterSource    struct{ broker.Source }
	laterPublisher struct {
		broker.Publisher
		broker.Destinations
	}
)

// checkEngine: what the engine finds.
func (cc *consumerCheck) checkEngine() {
	e := cc.Engine()
	for range cc.Reads() {
		e.Sources = append(e.Sources, consumer.Input{Source: laterSource{}})
	}
	if e.Batch == nil {
		e.Handler = func(context.Context, *consumer.Message) error { return nil }
	} else {
		e.Batch.Handler = func(context.Context, []*consumer.Message) error { return nil }
	}
	if t := e.Retry.Topics; t != nil {
		t.Publisher, t.Source = laterPublisher{}, laterSource{}
	}
	if l := e.DeadLetter; l != nil {
		l.Publisher, l.HandlerOf = laterPublisher{}, func(*consumer.Message) string { return "" }
	}
	cc.FindConfig(cc.at, cc.Consumer, e.Validate())
}
