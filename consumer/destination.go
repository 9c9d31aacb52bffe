package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A destination is where a consumer publishes what it cannot finish: the dead letters, a retry topic. That there is none is found
// out at the start, not when the first message needs it.
type destination struct {
	topic    string
	create   bool
	where    broker.Destinations
	retainer broker.Retainer // nil: nobody can tell
	waits    time.Duration   // for how long a message has to wait there; 0: nobody knows
	misses   int             // looks in a row that did not find it
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

// destinations finds them, and has those that are missing.
type destinations struct {
	cfg  *Config
	tell *teller

	mu      sync.Mutex
	missing map[string]error
}

// all are those that can be looked for.
func (ds *destinations) all() (all []*destination) {
	if l := ds.cfg.DeadLetter; l != nil {
		if where, ok := l.Publisher.(broker.Destinations); ok {
			for _, topic := range l.Targets() {
				all = append(all, &destination{topic: topic, create: l.Create, where: where, retainer: retainerOf(l.Publisher)})
			}
		}
	}
	if r := ds.cfg.Retry.Topics; r != nil {
		if where, ok := r.Publisher.(broker.Destinations); ok {
			for _, s := range r.Steps {
				all = append(all, &destination{topic: s.Topic, where: where, retainer: retainerOf(r.Publisher), waits: s.Delay})
			}
		}
	}
	return all
}

func retainerOf(p broker.Publisher) broker.Retainer {
	k, _ := broker.Innermost(p).(broker.Retainer)
	return k
}

// run looks for them until each was found, or ctx ends.
func (ds *destinations) run(ctx context.Context) {
	left := ds.all()
	for wait := findFirst; ; wait = min(2*wait, findMost) {
		left = slices.DeleteFunc(left, func(d *destination) bool { return ds.found(ctx, d) })
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
func (ds *destinations) found(ctx context.Context, d *destination) bool {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	err := failing(func() error { return d.where.Find(ctx, d.topic) })
	_, panicked := panicOf(err)
	created := false
	if errors.Is(err, broker.ErrNoTopic) && d.create {
		err = failing(func() error { return d.where.Create(ctx, d.topic) })
		created = err == nil
	}
	switch {
	case err == nil:
		if ds.miss(d.topic, nil) || created {
			ds.tell.tell(DestinationFound{Topic: d.topic, Created: created})
		}
		ds.kept(ctx, d)
		return true
	case errors.Is(err, broker.ErrNoTopic), panicked, d.create && ctx.Err() == nil:
		if d.misses++; d.misses == sureMisses {
			ds.miss(d.topic, err)
			ds.tell.tell(DestinationMissing{Topic: d.topic, Err: err})
		}
	}
	return false
}

// kept tells where a destination does not keep what has to wait there.
func (ds *destinations) kept(ctx context.Context, d *destination) {
	if d.retainer == nil {
		return
	}
	if err := failing(func() error { return d.retainer.Retains(ctx, d.topic, d.waits) }); err != nil {
		ds.tell.tell(DestinationLossy{Topic: d.topic, Err: err})
	}
}

// miss notes whether a destination is missing, and returns whether it was.
func (ds *destinations) miss(topic string, err error) (was bool) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	_, was = ds.missing[topic]
	if err == nil {
		delete(ds.missing, topic)
	} else if ds.missing == nil {
		ds.missing = map[string]error{topic: err}
	} else {
		ds.missing[topic] = err
	}
	return was
}

// concerns are what Consumer.Concerns returns.
func (ds *destinations) concerns() (all []string) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	for topic, err := range ds.missing {
		all = append(all, fmt.Sprintf("nothing can be published to %s, and what has to stays here: %v", topic, err))
	}
	slices.Sort(all)
	return all
}
