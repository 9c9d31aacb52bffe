package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
)

const (
	demoStream   = "DEMO"
	demoSubject  = "demo.events"
	demoConsumer = "demo-workers"
	// demoWork is how long a demo handler takes, about.
	demoWork = 5 * time.Millisecond
)

func newDemo() *cobra.Command {
	var (
		duration time.Duration
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the pool sizing itself on an embedded NATS JetStream server",
		Long: "Starts a NATS JetStream server inside this process (file store in a temporary folder), publishes a load that steps up,\n" +
			"bursts and falls, and handles it with handlers that take about 5 ms. Progress goes to stderr, the summary to stdout.\n" +
			"Exits with 1 if anything was lost.",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return usageError{err}
			}
			if duration < time.Second {
				return usageError{fmt.Errorf("--duration is %v, want at least 1s", duration)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := runDemo(cmd.Context(), duration, newView(os.Stderr))
			if err != nil {
				return err
			}
			if err := s.print(cmd.OutOrStdout(), asJSON); err != nil {
				return err
			}
			if s.Lost > 0 {
				return fmt.Errorf("%d messages were lost", s.Lost)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&duration, "duration", 20*time.Second, "how long the load lasts")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the summary as JSON")
	return cmd
}

// runDemo runs the whole demo; ctx's end stops the load early and still counts.
func runDemo(ctx context.Context, duration time.Duration, v *view) (s demoSummary, err error) {
	dir, err := os.MkdirTemp("", "longshore-demo-")
	if err != nil {
		return s, fmt.Errorf("making a folder for the file store: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	srv, err := startNATS(dir, server.RANDOM_PORT)
	if err != nil {
		return s, err
	}
	defer srv.stop()
	nc, err := nats.Connect(srv.url)
	if err != nil {
		return s, fmt.Errorf("connecting to the embedded server: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(8192))
	if err != nil {
		return s, fmt.Errorf("using JetStream: %w", err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: demoStream, Subjects: []string{demoSubject}}); err != nil {
		return s, fmt.Errorf("creating the stream: %w", err)
	}
	l := &load{js: js, subject: demoSubject, duration: duration}
	t := &tally{}
	c, err := newDemoConsumer(srv.url, t, v)
	if err != nil {
		return s, err
	}
	return playDemo(ctx, c, l, t, v)
}

func newDemoConsumer(url string, t *tally, v *view) (*consumer.Consumer, error) {
	source, err := natsbroker.NewSource(natsbroker.Config{
		Connection: natsbroker.Connection{URLs: []string{url}}, Stream: demoStream, Consumer: demoConsumer,
	})
	if err != nil {
		return nil, err
	}
	return consumer.New(consumer.Config{
		Name:   "demo",
		Source: source,
		Handler: func(ctx context.Context, m *consumer.Message) error {
			select {
			case <-time.After(demoWork*9/10 + rand.N(demoWork/5)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return t.add(m.Value, time.Now())
		},
		Pool:      consumer.Pool{Max: 128},
		Observers: []consumer.Observer{v.observe},
	})
}

// playDemo runs consumer and load beside each other until all that was published is handled.
func playDemo(ctx context.Context, c *consumer.Consumer, l *load, t *tally, v *view) (s demoSummary, err error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	consumed, shown := make(chan error, 1), make(chan struct{})
	go func() { consumed <- c.Run(running) }()
	go func() { defer close(shown); v.run(running, c, l, t) }()

	err = l.run(ctx)
	confirmed := l.confirmed()
	waitHandled(running, t, len(confirmed), consumed)
	stop()
	<-shown
	return t.summary(confirmed, v.peakWorkers()), errors.Join(err, <-consumed)
}

// waitHandled waits until n messages were handled, or nothing more was for 10 s.
func waitHandled(ctx context.Context, t *tally, n int, consumed chan error) {
	last, since := -1, time.Now()
	for ctx.Err() == nil {
		have := t.count()
		if have >= n {
			return
		}
		if have != last {
			last, since = have, time.Now()
		}
		if time.Since(since) > 10*time.Second {
			return
		}
		select {
		case err := <-consumed:
			consumed <- err
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s demoSummary) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(s)
	}
	_, err := fmt.Fprintf(w, "published %d, handled %d, lost %d, duplicates %d, peak workers %d, latency p50 %.1f ms, p99 %.1f ms\n",
		s.Published, s.Handled, s.Lost, s.Duplicates, s.PeakWorkers, s.P50, s.P99)
	return err
}
