package handlers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/internal/panicked"
)

// Beside has f called by Run, in a goroutine of its own, for what has to run while the consumer does and needs it: what prunes an
// inbox (inbox.Run), for example. ctx ends when the consumer has drained and made its last commits, and not at the signal; Run
// waits for f then. An error of f, at any time, or a panic, is an error of Run, and makes the consumer drain; nil before the end
// is none.
func (s *Setup) Beside(f func(ctx context.Context, c *consumer.Consumer) error) {
	s.beside = append(s.beside, f)
}

// Run runs c until ctx ends, and what was given to Beside for as long. It returns their errors, joined. Once.
func (s *Setup) Run(ctx context.Context, c *consumer.Consumer) error {
	running, drain := context.WithCancel(ctx)
	defer drain()
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ended := make(chan error, len(s.beside))
	for _, f := range s.beside {
		go func() {
			err := errors.New("handlers: what runs beside the consumer called runtime.Goexit")
			defer func() {
				if err != nil {
					drain()
				}
				ended <- err
			}()
			err = runBeside(beside, c, f)
		}()
	}
	errs := []error{c.Run(running)}
	end()
	for range s.beside {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// runBeside is what f returns, or its panic.
func runBeside(ctx context.Context, c *consumer.Consumer, f func(context.Context, *consumer.Consumer) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("handlers: what runs beside the consumer, at %s: %w", panicked.At("/handlers.runBeside"),
				&consumer.PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	return f(ctx, c)
}
