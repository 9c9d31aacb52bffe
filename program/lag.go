package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/spf13/cobra"
)

// lagFlags say whose lag is shown, and how.
type lagFlags struct {
	file                        string
	brokers, topics             []string
	group                       string
	url, creds, stream, durable string
	asJSON, watch               bool
	every, timeout              time.Duration
	adapters                    []string // from outside
}

func newLag(p Parts) *cobra.Command {
	l := &lagFlags{adapters: p.adapters()}
	cmd := &cobra.Command{
		Use:   "lag",
		Short: "Show how far consumers are behind",
		Long: "Shows of each partition that a group reads (Kafka), or of each durable consumer (JetStream), what is committed, where " +
			"the log ends, and\n" +
			"how many messages are between; of these, finished are those that are handled already and wait only for one before them. It " +
			"asks the\n" +
			"broker and is no member of the group, so it tells of consumers that do not run, too. Which ones: all of a configuration " +
			"file (-c), or\n" +
			"one by flags. The table or JSON goes to stdout, what could not be read to stderr; the exit code is then 1.",
		Example: "  longshore lag -c c.yaml\n  longshore lag --brokers 127.0.0.1:9092 --group orders-workers --watch\n  longshore " +
			"lag --stream ORDERS --durable orders-workers --json",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			if err := l.check(cmd); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	l.flags(cmd)
	return cmd
}

func (l *lagFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&l.file, "config", "c", "", "configuration file: all of its consumers")
	f.StringSliceVar(&l.brokers, "brokers", nil, "Kafka brokers, host:port (default $KAFKA_BROKERS, or "+defaultBroker+")")
	f.StringVar(&l.group, "group", "", "Kafka consumer group")
	f.StringSliceVar(&l.topics, "topic", nil, "Kafka topics (default all of which the group has committed something)")
	f.StringVar(&l.url, "url", "", "NATS server (default $NATS_URL, or "+defaultServer+")")
	f.StringVar(&l.creds, "creds", "", "NATS credentials file")
	f.StringVar(&l.stream, "stream", "", "JetStream stream")
	f.StringVar(&l.durable, "durable", "", "its durable consumer")
	f.BoolVar(&l.asJSON, "json", false, "print JSON, with --watch an object a line")
	f.BoolVar(&l.watch, "watch", false, "go on until stopped")
	f.DurationVar(&l.every, "every", 2*time.Second, "how often with --watch")
	f.DurationVar(&l.timeout, "timeout", 10*time.Second, "how long to try to reach the brokers")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	_ = cmd.MarkFlagFilename("creds", "creds")
}

// check reports all that is wrong with the flags at once.
func (l *lagFlags) check(cmd *cobra.Command) error {
	var errs []error
	kafka, nats := setFlags(cmd, "brokers", "group", "topic"), setFlags(cmd, "url", "creds", "stream", "durable")
	switch {
	case l.file != "" && len(kafka)+len(nats) > 0:
		errs = append(errs, fmt.Errorf("--config and %s are set: the file says it all", append(kafka, nats...)[0]))
	case len(kafka) > 0 && len(nats) > 0:
		errs = append(errs, fmt.Errorf("%s and %s are set: the first is for Kafka, the second for NATS", kafka[0], nats[0]))
	case len(kafka) > 0 && l.group == "":
		errs = append(errs, errors.New("--group is missing"))
	case len(nats) > 0 && (l.stream == "" || l.durable == ""):
		errs = append(errs, errors.New("--stream and --durable are wanted both"))
	case l.file == "" && len(kafka)+len(nats) == 0:
		errs = append(errs, errors.New("lag needs -c FILE, or --group for Kafka, or --stream and --durable for JetStream"))
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"--every", l.every}, {"--timeout", l.timeout}} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s is %v, want more than 0", d.flag, d.value))
		}
	}
	if cmd.Flags().Changed("every") && !l.watch {
		errs = append(errs, errors.New("--every is set and --watch is not: without it lag is shown once"))
	}
	return errors.Join(errs...)
}

// run shows lags once, or until ctx ends.
func (l *lagFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	views, without, err := l.views(ctx)
	defer func() {
		for _, v := range views {
			v.close()
		}
	}()
	if err != nil {
		return usageError{err}
	}
	for _, note := range without {
		fmt.Fprintln(stderr, "longshore:", note)
	}
	table := &lagTable{out: stdout, redraw: l.watch && isTerminal(stdout)}
	for {
		r, err := readLags(ctx, views, l.timeout)
		if ctx.Err() != nil {
			return nil
		}
		if l.asJSON {
			err = errors.Join(err, r.printJSON(stdout))
		} else {
			err = errors.Join(err, table.print(r))
		}
		if !l.watch {
			return err
		}
		if err != nil { // a broker may be away for a while
			fmt.Fprintln(stderr, "longshore:", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(l.every):
		}
	}
}

// views are those of the flags, or of all consumers of the file, and what has no lag.
func (l *lagFlags) views(ctx context.Context) (views []lagView, without []error, err error) {
	switch {
	case l.file != "":
		return fileViews(ctx, l.file, l.adapters)
	case l.group != "":
		v, err := kafkaView("", kafkabroker.LagViewConfig{
			Connection: kafkabroker.Connection{Brokers: kafkaBrokers(l.brokers),
				ClientID: "longshore-lag"}, Group: l.group, Topics: l.topics,
		})
		return []lagView{v}, nil, ofFlags(err)
	}
	v, err := natsView("", natsbroker.LagViewConfig{
		Connection: natsbroker.Connection{URLs: []string{natsURL(l.url)}, CredsFile: l.creds,
			Name: "longshore lag"}, Stream: l.stream, Consumer: l.durable,
	})
	return []lagView{v}, nil, ofFlags(err)
}

func fileViews(ctx context.Context, name string, adapters []string) (views []lagView, without []error, err error) {
	doc, err := loadFile(ctx, name, adapters)
	if err != nil {
		return nil, nil, err
	}
	if err := doc.ErrOf(config.NeedsBroker); err != nil {
		return nil, nil, err
	}
	for _, consumer := range slices.Sorted(maps.Keys(doc.File.Consumers)) {
		c := doc.File.Consumers[consumer]
		more, err := consumerViews(consumer, c, doc)
		views = append(views, more...)
		if err != nil {
			return views, nil, err
		}
		if slices.ContainsFunc(c.Reads(), func(in config.Read) bool { return in.NATSCore != nil }) {
			without = append(without, fmt.Errorf("consumer %s: core NATS keeps nothing, so there is no lag", consumer))
		}
	}
	if len(views) == 0 {
		return nil, nil, errors.Join(without...)
	}
	return views, without, nil
}

// consumerViews are those of a consumer's sources, and that of its retry topics where it has some.
func consumerViews(name string, c *config.Consumer, doc *config.Document) (views []lagView, err error) {
	add := func(v lagView, failed error) { views, err = append(views, v), errors.Join(err, failed) }
	for i, in := range c.Reads() {
		if n := in.NATS; n != nil {
			cfg := n.Adapter(embeddedURL(doc.File.Embedded))
			v, err := natsView(name, natsbroker.LagViewConfig{Connection: cfg.Connection, Stream: cfg.Stream, Consumer: cfg.Consumer,
				Domain: cfg.Domain})
			if n.Embedded() {
				v = v.ofEmbedded(doc.Name)
			}
			add(v, err)
		}
		if o := in.Other; o != nil {
			add(lagView{read: func(context.Context) ([]lagRow, error) {
				err := fmt.Errorf("consumer %s: lag does not know the broker %s", name, o.Adapter)
				return []lagRow{{Consumer: name, Broker: o.Adapter, Error: err.Error()}}, err
			}, close: func() {}}, nil)
		}
		if k := in.Kafka; k != nil {
			cfg := k.Adapter()
			view := kafkabroker.LagViewConfig{Connection: cfg.Connection, Group: cfg.Group, Topics: cfg.Topics, Pattern: cfg.Pattern,
				Uncommitted: cfg.Uncommitted}
			add(kafkaView(name, view))
			if i == 0 && len(c.Retry.Topics) > 0 {
				view.Group, view.Topics, view.Pattern = k.RetryGroup(), c.Retry.Names(), ""
				add(kafkaView(name, view))
			}
		}
	}
	return views, err
}
