// Command longshore runs background event processing from the command line.
//
// Exit codes: 0 done, 1 failed at work, 2 wrong use, 130 and 143 stopped by force (a second SIGINT or SIGTERM).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := stopOnSignal()
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "longshore:", err)
	var use usageError
	if errors.As(err, &use) {
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}

// A usageError is the caller's: wrong flags or arguments.
type usageError struct{ error }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "longshore",
		Short:         "Background event processing on Kafka and NATS JetStream",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newDemo())
	return root
}

// stopOnSignal ends the context at the first SIGINT or SIGTERM, which asks for a drain; the second ends the process at once.
func stopOnSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s, ok := <-signals
		if !ok {
			return
		}
		cancel()
		fmt.Fprintln(os.Stderr, "longshore: stopping; a second signal stops at once")
		if s, ok = <-signals; ok {
			os.Exit(128 + int(s.(syscall.Signal)))
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
		<-done
	}
}
