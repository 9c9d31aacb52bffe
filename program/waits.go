package program

import (
	"context"
	"errors"
	"os"

	"github.com/longshoremq/longshore/program/internal/config"
)

// errStopped says that a signal ended a command that only waited for something to read.
var errStopped = errors.New("stopped")

// until is what read returns, or errStopped where ctx ends before: a pipe that nobody writes to, or a terminal, keeps its reader
// for ever, and no signal cuts that short. Its goroutine ends with the read, or with the process, which is about to end then.
func until[T any](ctx context.Context, read func() (T, error)) (v T, err error) {
	done := make(chan struct{})
	var got T
	var wrong error
	go func() {
		defer close(done)
		got, wrong = read()
	}()
	select {
	case <-done:
		return got, wrong
	case <-ctx.Done():
		return v, errStopped
	}
}

// loadFile reads a configuration file, which may be a pipe.
func loadFile(ctx context.Context, file string, adapters []string) (*config.Document, error) {
	if file == "-" {
		return nil, usageError{errors.New("-c is -, the standard input, which run and config alone read: name a file, or a pipe as " +
			"/dev/stdin")}
	}
	return until(ctx, func() (*config.Document, error) { return config.Load(file, os.LookupEnv, adapters...) })
}
