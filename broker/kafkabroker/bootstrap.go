package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// firstTry bounds the first try to reach a broker: somebody waits to be told what is wrong. A broker that is only slow is reached
// by a later one.
const firstTry = 2 * time.Second

// A bootstrap reaches a broker, and looks at the topics for the first time. It tells events, since there is no loop yet.
type bootstrap struct {
	cfg    *Config
	c      *cluster
	poll   *poller
	atlas  *atlas
	events *kit.EventQueue
	note   contact
}

// run tries until a broker answers.
func (x *bootstrap) run(ctx, life context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	var seen error // of the last try that had its time
	for wait := retryWait; ; wait = min(2*wait, time.Second) {
		err := x.reach(ctx, seen == nil)
		if ctx.Err() == nil || seen == nil {
			if seen = err; err != nil { // Up is told by the group's first answer
				x.note.failed(err)
			}
		}
		x.events.Tell()
		switch {
		case err == nil:
			return nil
		case life.Err() != nil:
			return broker.ErrClosed
		case refused(err), errors.Is(err, broker.ErrNoTopic):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("%w (given up: %w)", seen, context.Cause(ctx))
		}
		pause(ctx, wait)
	}
}

// reach tries the brokers, and looks at the topics.
func (x *bootstrap) reach(ctx context.Context, first bool) error {
	probing := ctx
	if first {
		var cancel context.CancelFunc
		probing, cancel = context.WithTimeout(ctx, firstTry)
		defer cancel()
	}
	if err := x.cfg.probe(probing, x.c.transport); err != nil {
		return err
	}
	waits := x.cfg.Missing == "wait"
	for looks := 1; ; looks++ { // a broker that has just started may not know its topics yet
		if err := x.poll.look(ctx, waits); err != nil {
			return err
		}
		err := x.atlas.absent()
		if err == nil || waits {
			return nil
		}
		if looks >= missingLooks || ctx.Err() != nil {
			return err
		}
		pause(ctx, 2*retryWait)
	}
}
