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

// produceFlags are those of produce.
type produceFlags struct {
	to      target
	payload payloadFlags
	rate    float64
	count   int64
	keys    int
	key     string
	set     []string // of --header
	timeout time.Duration
	asJSON  bool
}

func newProduce() *cobra.Command {
	p := &produceFlags{}
	cmd := &cobra.Command{
		Use:   "produce",
		Short: "Publish messages to a JetStream stream or a Kafka topic, each confirmed",
		Long: "Publishes numbered messages, {\"number\": 17, \"pad\": \"…\"}, or a payload of your own (--data, --file, --lines), " +
			"and waits until the\n" +
			"broker has stored each one. The defaults are those of config example and its embedded server; --brokers or --topic " +
			"publishes to\n" +
			"Kafka. Progress goes to stderr, the summary to stdout. Exits with 1 if not all were confirmed. The url may come from " +
			"NATS_URL, so\n" +
			"that a password in it is not on the command line, the brokers from KAFKA_BROKERS. --data and --key are templates of Go.",
		Example: "  longshore produce\n  longshore produce --rate 500 --count 0 --keys 20\n  longshore produce --brokers " +
			"127.0.0.1:9092 --topic orders\n" +
			"  longshore produce --data '{\"order\": {{.Index}}}' --key 'customer-{{.Index}}' --count 10\n  longshore produce --lines < " +
			"orders.jsonl\n" +
			"  longshore produce --file order.json --header priority=high --header ce-type=com.example.order.created",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			return p.check(cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	p.to.flags(cmd)
	p.payload.flags(cmd)
	f := cmd.Flags()
	f.Float64Var(&p.rate, "rate", 100, "messages per second; 0: as fast as they are confirmed, as with --lines")
	f.Int64Var(&p.count, "count", 1000, "number of messages; 0: until stopped. With --data or --file one, with --lines all lines, "+
		"unless set")
	f.IntVar(&p.keys, "keys", 0, "number of different keys; 0: no keys")
	f.StringVar(&p.key, "key", "", "key of each message, a template as in --data")
	f.StringArrayVar(&p.set, "header", nil, "header of each message, as name=value; may be given several times")
	f.DurationVar(&p.timeout, "timeout", 10*time.Second, "how long to try to connect, and to have messages confirmed")
	f.BoolVar(&p.asJSON, "json", false, "print the summary as JSON")
	return cmd
}

// check reports all that is wrong with the flags at once, and sets those that depend on others.
func (p *produceFlags) check(cmd *cobra.Command) error {
	var f broker.Findings
	f.Check(p.rate >= 0 && p.rate <= 1e7, "--rate", "is %v, want 0 to 10,000,000", p.rate)
	f.Check(p.count >= 0, "--count", "is %d, negative", p.count)
	f.Check(p.keys >= 0, "--keys", "is %d, negative", p.keys)
	f.Check(p.key == "" || p.keys == 0, "--key", "and --keys are set: set one")
	f.Check(p.timeout > 0, "--timeout", "is %v, want more than 0", p.timeout)
	_, keyErr := newPattern("--key", p.key)
	_, headerErr := headersOf(p.set)
	if err := errors.Join(p.to.choose(cmd), f.Err(), keyErr, p.payload.check(cmd), headerErr); err != nil {
		return usageError{err}
	}
	if p.payload.own(cmd) && !cmd.Flags().Changed("count") {
		p.count = 1
		if p.payload.lines {
			p.count = 0
		}
	}
	if p.payload.lines && !cmd.Flags().Changed("rate") {
		p.rate = 0
	}
	return nil
}

// run publishes, and prints the summary.
func (p *produceFlags) run(cmd *cobra.Command) error {
	from, closed, err := p.payload.open(cmd)
	if err != nil {
		return usageError{err}
	}
	made, err := p.production(from)
	if err != nil {
		return errors.Join(err, closed())
	}
	if err := p.to.reach(cmd.Context(), p.timeout); err != nil {
		return errors.Join(err, closePublisher(made.publisher), closed())
	}
	s, err := made.run(cmd.Context(), newProgress(cmd.ErrOrStderr(), p.count))
	if p.to.embedded() {
		err = embeddedAway(err, "FILE")
	}
	return errors.Join(err, closePublisher(made.publisher), closed(), s.print(cmd.OutOrStdout(), p.asJSON))
}

// production is what the flags ask for. They were checked.
func (p *produceFlags) production(from payload) (*production, error) {
	made := &production{topic: p.to.name(), payload: from, rate: p.rate, count: p.count, keys: p.keys, timeout: p.timeout}
	made.headers, _ = headersOf(p.set)
	size := from.longest() + made.headerBytes()
	if p.key != "" {
		made.key, _ = newPattern("--key", p.key)
		size += made.key.most
	}
	var err error
	if made.publisher, err = p.to.publisher(size); err != nil {
		return nil, usageError{ofFlags(err)}
	}
	return made, nil
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
	return printSummary(w, fmt.Sprintf("sent %d", s.Sent), fmt.Sprintf("confirmed %d", s.Confirmed),
		fmt.Sprintf("%d bytes", s.Bytes), fmt.Sprintf("in %.1f s", s.Seconds),
		fmt.Sprintf("%.0f/s", s.Rate))
}
