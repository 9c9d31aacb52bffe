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

// secondLook is for how long a login is tried that is refused at the start, where its password is in a file: it may be about to
// be replaced there. Later, when it is known to have been right once, it is tried for as long as it takes.
const secondLook = 2 * time.Second

// A bootstrap reaches a broker, and looks at the topics for the first time. It tells events, since there is no loop yet.
type bootstrap struct {
	cfg    *Config
	c      *cluster
	poll   *poller
	atlas  *atlas
	events *kit.EventQueue
	note   contact
}

// run tries until a broker answers, and until there is something to consume, where that is waited for.
func (x *bootstrap) run(ctx, life context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	for awaited := error(nil); ; pause(ctx, x.poll.every(false)) {
		asked, lost, err := x.contact(ctx, life, awaited)
		if err != nil {
			return err
		}
		was := awaited
		if awaited = x.atlas.nothing(); awaited == nil || x.cfg.Missing != "wait" {
			return nil
		}
		if lost { // the last that was said is to be what it waits for
			x.note.exchange(asked, nil)
			if was != nil {
				x.events.Say(broker.Event{Kind: broker.Warning, Err: awaited})
			}
			x.events.Tell()
		}
	}
}

// contact tries until a broker answers, and says when it asked for that, and whether it had told of a failure. seen is what to
// return where somebody gives up during the first try.
func (x *bootstrap) contact(ctx, life context.Context, seen error) (asked time.Time, lost bool, err error) {
	var wrong time.Time // since when the login is refused
	for wait := retryWait; ; wait = min(2*wait, time.Second) {
		asked = time.Now()
		err = x.reach(ctx, seen == nil)
		switch {
		case !refusedNow(err):
			wrong = time.Time{}
		case wrong.IsZero():
			wrong = asked
		}
		if err != nil && (ctx.Err() == nil || seen == nil) {
			seen, lost = err, true // Up is told by the group's first answer
			x.note.failed(err)
		}
		x.events.Tell()
		switch {
		case err == nil:
			return asked, lost, nil
		case life.Err() != nil:
			return asked, lost, broker.ErrClosed
		case refused(err), refusedNow(err) && asked.Sub(wrong) >= secondLook, errors.Is(err, broker.ErrNoTopic):
			return asked, lost, err
		case ctx.Err() != nil:
			return asked, lost, fmt.Errorf("%w (given up: %w)", seen, context.Cause(ctx))
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
	waits := x.cfg.Missing != "stop"
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
