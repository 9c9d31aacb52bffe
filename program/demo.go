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

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

const (
	// demoWork is how long a demo handler takes, about.
	demoWork = 5 * time.Millisecond
	// demoWorkers are there at most.
	demoWorkers = 128
)

func newDemo() *cobra.Command {
	var (
		duration time.Duration
		asJSON   bool
		brokers  []string
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the pool sizing itself on an embedded NATS JetStream server, or on a Kafka of yours",
		Long: "Starts a NATS JetStream server inside this process (file store in a temporary folder), publishes a load that steps " +
			"up,\n" +
			"bursts and falls, and handles it with handlers that take about 5 ms. With --kafka it does so on that broker, in a topic " +
			"and\n" +
			"a group of its own, which it deletes at the end. Progress goes to stderr, the summary to stdout.\n" +
			"Exits with 1 if anything was lost.",
		Example: "  longshore demo\n  longshore demo --kafka 127.0.0.1:9092",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			if duration < time.Second {
				return usageError{fmt.Errorf("--duration is %v, want at least 1s", duration)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := runDemo(cmd.Context(), brokers, duration, newView(os.Stderr))
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
	cmd.Flags().StringSliceVar(&brokers, "kafka", nil, "Kafka brokers, host:port, instead of the embedded server")
	cmd.Flags().DurationVar(&duration, "duration", 20*time.Second, "how long the load lasts")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the summary as JSON")
	return cmd
}

// runDemo runs the whole demo, on Kafka where there are brokers; ctx's end stops the load early and still counts.
func runDemo(ctx context.Context, brokers []string, duration time.Duration, v *view) (s demoSummary, err error) {
	var at demoBroker
	if len(brokers) > 0 {
		at, err = kafkaDemoBroker(ctx, brokers)
	} else {
		at, err = natsDemoBroker(ctx)
	}
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, closePublisher(at.publisher), at.clear()) }()
	l := &load{publisher: at.publisher, topic: at.topic, duration: duration}
	t := &tally{}
	c, err := newDemoConsumer(at.source, t, v)
	if err != nil {
		return s, err
	}
	return playDemo(ctx, c, l, t, v)
}

func newDemoConsumer(source broker.Source, t *tally, v *view) (*consumer.Consumer, error) {
	return consumer.New(consumer.Config{
		Name:   "demo",
		Source: source,
		Logger: zerolog.Nop(), // the view has the terminal
		Handler: func(ctx context.Context, m *consumer.Message) error {
			select {
			case <-time.After(demoWork*9/10 + rand.N(demoWork/5)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return t.add(m.Value, time.Now())
		},
		Pool:      consumer.Pool{Max: demoWorkers},
		Observers: []consumer.Observer{v.observe},
	})
}

// playDemo runs consumer and load beside each other until all that was published is handled.
func playDemo(ctx context.Context, c *consumer.Consumer, l *load, t *tally, v *view) (s demoSummary, err error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	consumed, shown := make(chan error, 1), make(chan struct{})
	go func() { consumed <- c.Run(running) }()
	waitAssigned(ctx, c, consumed)
	go func() { defer close(shown); v.run(running, c, l, t) }()

	err = l.run(ctx)
	confirmed := l.confirmed()
	waitHandled(running, t, len(confirmed), consumed)
	stop()
	<-shown
	return t.summary(confirmed, v.peakWorkers()), errors.Join(err, <-consumed)
}

// assignPatience is how long the demo waits for its consumer to have something to read. Kafka waits 3 s by default for more
// members of a new group.
const assignPatience = 20 * time.Second

// waitAssigned waits until the consumer knows its lag, and so has what it reads: else the first messages would wait for that, and
// not for workers.
func waitAssigned(ctx context.Context, c *consumer.Consumer, consumed chan error) {
	ctx, cancel := context.WithTimeout(ctx, assignPatience)
	defer cancel()
	for c.Stats().Lag.Waiting < 0 {
		select {
		case err := <-consumed:
			consumed <- err
			return
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
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
	return printSummary(w, fmt.Sprintf("published %d", s.Published), fmt.Sprintf("handled %d", s.Handled),
		fmt.Sprintf("lost %d", s.Lost), fmt.Sprintf("duplicates %d", s.Duplicates),
		fmt.Sprintf("peak workers %d", s.PeakWorkers), fmt.Sprintf("latency p50 %.1f ms", s.P50), fmt.Sprintf("p99 %.1f ms", s.P99))
}
