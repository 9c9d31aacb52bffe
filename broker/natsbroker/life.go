package natsbroker

import (
	"context"
	"errors"
	"sync"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// life is a source's, with its connection and its events: what Open and Close of both sources have in common. Safe for concurrent
// use.
type life struct {
	*kit.Life
	events *kit.EventQueue
	link   *link

	opening sync.Mutex // held by open, so that Close does not take the connection from under it
}

func newLife(c Connection, h hooks) *life {
	return &life{Life: kit.NewLife("natsbroker"), events: kit.NewEventQueue(), link: newLink(c, h)}
}

// open connects, has connected do the rest of it, and starts the loops. After an error no loop runs; broker.ErrClosed says that
// Close was called meanwhile.
func (l *life) open(
	ctx context.Context, o broker.Options, connected func(context.Context) error, loops ...func(context.Context),
) error {
	l.opening.Lock()
	defer l.opening.Unlock()
	if err := l.Begin(o); err != nil {
		return err
	}
	l.events.Observe(o.Observe)
	l.Go(func() { l.events.Run(l.Context()) })
	if err := l.connect(ctx, connected); err != nil {
		failed := l.Fail(broker.ErrClosed)
		if l.Context().Err() != nil {
			return failed
		}
		return err // it says what was being done
	}
	return l.Launch(func(run func(func())) {
		for _, loop := range loops {
			run(func() { loop(l.Context()) })
		}
	})
}

func (l *life) connect(ctx context.Context, connected func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.Context(), cancel)()
	if err := l.link.open(ctx); err != nil {
		return err
	}
	for _, err := range l.link.cfg.exposed() {
		l.warn(err)
	}
	return connected(ctx)
}

// close calls shut where Open came to its end, and tells what last says. It waits for an Open under way.
func (l *life) close(shut func() error, last func()) error {
	return l.Close(func() error {
		l.opening.Lock()
		defer l.opening.Unlock()
		return shut()
	}, func() {
		l.opening.Lock()
		defer l.opening.Unlock()
		l.link.close() // of an Open that was given up
		last()
		l.events.Tell()
	})
}

func (l *life) warn(err error) { l.events.Say(broker.Event{Kind: broker.Warning, Err: err}) }

func (l *life) unconfirmed(n int, why string) {
	l.events.Say(broker.Event{Kind: broker.Unconfirmed, N: int64(n), Err: errors.New("natsbroker: " + why)})
}
