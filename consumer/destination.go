package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A destination is where a consumer publishes what it cannot finish: the dead letters, a retry topic. That there is none is found
// out at the start, not when the first message needs it.
type destination struct {
	topic  string
	create bool
	where  broker.Destinations
	misses int // looks in a row that did not find it
}

const (
	// findTimeout bounds one look.
	findTimeout = 5 * time.Second
	// findFirst is the pause after the first look, which doubles up to findMost.
	findFirst = 500 * time.Millisecond
	findMost  = 30 * time.Second
	// sureMisses is how many looks in a row say that there is none: a broker that has just started may not know its topics yet.
	sureMisses = 2
)

// destinations are those that can be looked for.
func (c *Consumer) destinations() (all []*destination) {
	if l := c.cfg.DeadLetter; l != nil {
		if where, ok := l.Publisher.(broker.Destinations); ok {
			for _, topic := range l.Targets() {
				all = append(all, &destination{topic: topic, create: l.Create, where: where})
			}
		}
	}
	if r := c.cfg.Retry.Topics; r != nil {
		if where, ok := r.Publisher.(broker.Destinations); ok {
			for _, s := range r.Steps {
				all = append(all, &destination{topic: s.Topic, where: where})
			}
		}
	}
	return all
}

// findDestinations looks for them until each was found, or ctx ends.
func (c *Consumer) findDestinations(ctx context.Context) {
	left := c.destinations()
	for wait := findFirst; ; wait = min(2*wait, findMost) {
		left = slices.DeleteFunc(left, func(d *destination) bool { return c.found(ctx, d) })
		if len(left) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// found looks for a destination, makes it where that is wanted, and tells what is new.
func (c *Consumer) found(ctx context.Context, d *destination) bool {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	err := d.where.Find(ctx, d.topic)
	created := false
	if errors.Is(err, broker.ErrNoTopic) && d.create {
		err = d.where.Create(ctx, d.topic)
		created = err == nil
	}
	switch {
	case err == nil:
		if c.miss(d.topic, nil) || created {
			c.tell(DestinationFound{Topic: d.topic, Created: created})
		}
		return true
	case errors.Is(err, broker.ErrNoTopic), d.create && ctx.Err() == nil:
		if d.misses++; d.misses == sureMisses {
			c.miss(d.topic, err)
			c.tell(DestinationMissing{Topic: d.topic, Err: err})
		}
	}
	return false
}

// miss notes whether a destination is missing, and returns whether it was.
func (c *Consumer) miss(topic string, err error) (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was = c.missing[topic]
	if err == nil {
		delete(c.missing, topic)
	} else if c.missing == nil {
		c.missing = map[string]error{topic: err}
	} else {
		c.missing[topic] = err
	}
	return was
}

// Concerns says what is missing that does not keep the consumer from running, but will keep messages here when they need it:
// topics, or streams, for dead letters and retries. Sorted; nil: nothing.
func (c *Consumer) Concerns() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for topic, err := range c.missing {
		all = append(all, fmt.Sprintf("nothing can be published to %s, and what has to stays here: %v", topic, err))
	}
	slices.Sort(all)
	return all
}
