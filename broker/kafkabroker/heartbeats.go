package kafkabroker

import (
	"context"
	"fmt"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

var errRejoin = fmt.Errorf("the group wants us to join again: %w", kafka.RebalanceInProgress)

// beat sends heartbeats until it is time to join again, or until enough (where it is not nil) says so.
func (g *classic) beat(ctx context.Context, enough func() bool) error {
	tick := time.NewTicker(g.cfg.HeartbeatInterval)
	defer tick.Stop()
	for {
		if enough != nil && enough() {
			return nil
		}
		if enough == nil {
			g.settle(ctx)
			if g.watch(ctx); g.wantsJoin() {
				return errRejoin
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.poke:
			continue
		case <-g.over():
		case <-tick.C: // at the end of the session, too, or after it
		}
		if s := g.contact(); s.silent(time.Now()) {
			return s.failed
		}
		began := time.Now()
		beatCtx, cancel := context.WithTimeout(ctx, g.patience())
		err := g.k.heartbeat(beatCtx, g.self())
		cancel()
		switch code := codeOf(err); {
		case err == nil:
			g.answered(began)
		case code == kafka.RebalanceInProgress:
			g.answered(began)
			if enough == nil {
				return err
			}
		case code == kafka.UnknownMemberId, code == kafka.IllegalGeneration, refused(err) && !g.contact().withdrawn(err):
			return err
		case g.contact().over(time.Now()):
			// The group may still have us as we were, for a broker that starts again gives its members new sessions. Were we to go on with
			// heartbeats it would wait for ever for work that we have lost.
			return err
		case ctx.Err() == nil:
			g.unanswered(err)
		}
	}
}

// await asks what brokers may answer late, and sends heartbeats meanwhile: what we keep goes on, and is lost in time
// where nobody answers any more.
func (g *classic) await(ctx context.Context, me memberID, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.RebalanceTimeout+g.k.c.timeout)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- ask(ctx) }()
	tick := time.NewTicker(g.cfg.HeartbeatInterval)
	defer tick.Stop()
	over := g.over()
	for {
		select {
		case err := <-answer:
			return err
		case <-over:
			g.silence(g.contact().failed)
			over = nil
		case <-tick.C:
			if s := g.contact(); s.silent(time.Now()) {
				g.silence(s.failed)
			}
			if err := g.keepAlive(ctx, me); err != nil {
				cancel()
				<-answer
				return err
			}
			over = g.over()
		}
	}
}

// keepAlive is the heartbeat beside a join or a sync. That the generation is over by now is no news; but a coordinator that
// says so does not count it as a sign of life, so the session goes on to its end: the answer to our join may be lost, and
// others have the partitions by then.
func (g *classic) keepAlive(ctx context.Context, me memberID) error {
	if me.member == "" || me.generation < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.patience())
	defer cancel()
	began := time.Now()
	err := g.k.heartbeat(ctx, me)
	switch codeOf(err) {
	case kafka.UnknownMemberId:
		return err
	case kafka.IllegalGeneration:
		g.trouble(began, nil)
		g.fails(err)
		g.silence(err)
		return nil
	case kafka.RebalanceInProgress:
		err = nil
	}
	if err == nil {
		g.answered(began)
		return nil
	}
	g.unanswered(err)
	return nil
}

// patience is how long to wait for the answer to a heartbeat.
func (g *classic) patience() time.Duration { return g.contact().patience(time.Now(), g.k.c.timeout) }

// unanswered takes note of an exchange that failed, which may be the last one of the session.
func (g *classic) unanswered(err error) {
	g.fails(err)
	g.trouble(time.Time{}, err)
	g.silence(err)
}

// fails keeps why what was asked last is no sign of life.
func (g *classic) fails(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.session.failed = err
}

// over tells the end of the session where what was asked last got no answer; nil: that is to be asked first, for a process that
// stood still may have its place yet.
func (g *classic) over() <-chan time.Time {
	s := g.contact()
	if left := time.Until(s.ends()); s.failed != nil && left > 0 {
		return time.After(left)
	}
	return nil
}

// silence loses everything when nobody has answered for a session: the group has given it to others by now.
func (g *classic) silence(err error) {
	if s := g.contact(); s.over(time.Now()) {
		g.lose(fmt.Errorf("no answer for %v: %w", s.length, err))
	}
}

// answered takes note of an answer to what was asked at a time.
func (g *classic) answered(asked time.Time) {
	g.mu.Lock()
	g.session.answered(asked)
	g.mu.Unlock()
	g.trouble(asked, nil)
}
