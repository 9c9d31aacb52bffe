package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/spf13/cobra"
	"golang.org/x/time/rate"
)

const (
	// minSize is the shortest message: its JSON with the largest number and no padding.
	minSize = 40
	maxSize = 64 << 20
	// mostAtOnce is how many messages are on their way together.
	mostAtOnce = 2048
)

func newProduce() *cobra.Command {
	p, to := &production{}, &target{}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "produce",
		Short: "Publish test messages to a JetStream stream or a Kafka topic, each confirmed",
		Long: "Publishes numbered messages, {\"number\": 17, \"pad\": \"…\"}, and waits until the broker has stored each one. The defaults are those of\n" +
			"config example and its embedded server; --brokers or --topic publishes to Kafka. Progress goes to stderr, the summary to stdout. Exits\n" +
			"with 1 if not all were confirmed. The url may come from NATS_URL, so that a password in it is not on the command line, the brokers from\n" +
			"KAFKA_BROKERS.",
		Example: "  longshore produce\n  longshore produce --rate 500 --count 0 --keys 20\n  longshore produce --brokers 127.0.0.1:9092 --topic orders\n" +
			"  longshore produce --header priority=high --header ce-type=com.example.order.created",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			return p.check(to.choose(cmd))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			publisher, err := to.publisher(p.size + p.headerBytes())
			if err != nil {
				return usageError{err}
			}
			p.publisher, p.topic = publisher, to.name()
			s, err := p.run(cmd.Context(), newProgress(cmd.ErrOrStderr(), p.count))
			if to.embedded() {
				err = embeddedAway(err, "FILE")
			}
			return errors.Join(err, closePublisher(publisher), s.print(cmd.OutOrStdout(), asJSON))
		},
	}
	to.flags(cmd)
	f := cmd.Flags()
	f.Float64Var(&p.rate, "rate", 100, "messages per second; 0: as fast as they are confirmed")
	f.Int64Var(&p.count, "count", 1000, "number of messages; 0: until stopped")
	f.IntVar(&p.size, "size", 100, "bytes of each message")
	f.IntVar(&p.keys, "keys", 0, "number of different keys; 0: no keys")
	f.StringArrayVar(&p.set, "header", nil, "header of each message, as name=value; may be given several times")
	f.DurationVar(&p.timeout, "timeout", 10*time.Second, "how long to try to connect, and to have messages confirmed")
	f.BoolVar(&asJSON, "json", false, "print the summary as JSON")
	return cmd
}

// check reports all that is wrong with the flags at once; target is what is wrong with where to publish to.
func (p *production) check(target error) error {
	errs := []error{target}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.rate >= 0 && p.rate <= 1e7, "--rate is %v, want 0 to 10,000,000", p.rate)
	check(p.count >= 0, "--count is %d, negative", p.count)
	check(p.size >= minSize && p.size <= maxSize, "--size is %d, want %d to %d", p.size, minSize, maxSize)
	check(p.keys >= 0, "--keys is %d, negative", p.keys)
	check(p.timeout > 0, "--timeout is %v, want more than 0", p.timeout)
	var err error
	p.headers, err = headersOf(p.set)
	if err := errors.Join(append(errs, err)...); err != nil {
		return usageError{err}
	}
	return nil
}

// headerBytes is what the headers of a message take at most: with each up to three lengths of at most 5 bytes.
func (p *production) headerBytes() (n int) {
	for _, h := range p.headers {
		n += len(h.Key) + len(h.Value) + 15
	}
	return n
}

// limiter lets rate messages a second through, and says how many go together.
func (p *production) limiter() (l *rate.Limiter, together int) {
	if p.rate == 0 {
		return rate.NewLimiter(rate.Inf, mostAtOnce), mostAtOnce
	}
	together = max(1, min(mostAtOnce, int(p.rate/20))) // about 20 steps a second
	return rate.NewLimiter(rate.Limit(p.rate), together), together
}

func closePublisher(p broker.Publisher) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return p.Close(ctx)
}

// A productionSummary is what produce prints at its end.
type productionSummary struct {
	Sent      int64   `json:"sent"`
	Confirmed int64   `json:"confirmed"`
	Bytes     int64   `json:"bytes"` // of the confirmed
	Seconds   float64 `json:"elapsed_seconds"`
	Rate      float64 `json:"rate_per_second"`
}

func (s productionSummary) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(s)
	}
	_, err := fmt.Fprintf(w, "sent %d, confirmed %d, %d bytes, in %.1f s, %.0f/s\n", s.Sent, s.Confirmed, s.Bytes, s.Seconds, s.Rate)
	return err
}
