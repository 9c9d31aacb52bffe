package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/longshoremq/longshore/internal/natssubject"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/spf13/cobra"
)

// A dlqTarget says whose dead letters are meant.
type dlqTarget struct {
	file, consumer      string
	brokers             []string
	topic               string
	url, creds, subject string
	timeout             time.Duration
	adapters            []string // from outside
	ofKafka             string   // a flag that is set, and that only Kafka has a use for

	doc *config.Document // of file, where it was read: it may be a pipe, which is read once
}

func (t *dlqTarget) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&t.file, "config", "c", "", "configuration file: the dead letters of one of its consumers")
	f.StringVar(&t.consumer, "consumer", "", "which consumer of the file (default the only one that has dead letters)")
	f.StringSliceVar(&t.brokers, "brokers", nil, "Kafka brokers, host:port (default $KAFKA_BROKERS, or "+defaultBroker+")")
	f.StringVar(&t.topic, "topic", "", "Kafka topic of dead letters; with -c: which of the consumer's")
	f.StringVar(&t.url, "url", "", "NATS server (default $NATS_URL, or "+defaultServer+")")
	f.StringVar(&t.creds, "creds", "", "NATS credentials file")
	f.StringVar(&t.subject, "subject", "", "NATS subject of dead letters; with -c: which of the consumer's")
	f.DurationVar(&t.timeout, "timeout", 10*time.Second, "how long to try to reach the broker")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	_ = cmd.MarkFlagFilename("creds", "creds")
}

// check reports all that is wrong with the flags at once.
func (t *dlqTarget) check(cmd *cobra.Command) error {
	if empty := emptyFlags(cmd); len(empty) > 0 { // what they say together with others nobody knows
		return errors.Join(empty...)
	}
	var errs []error
	kafka, nats := setFlags(cmd, "brokers", "topic"), setFlags(cmd, "url", "creds", "subject")
	switch where := setFlags(cmd, "brokers", "url", "creds"); {
	case t.file != "" && len(where) > 0:
		errs = append(errs, fmt.Errorf("--config and %s are set: the file says it all", where[0]))
	case len(kafka) > 0 && len(nats) > 0:
		errs = append(errs, fmt.Errorf("%s and %s are set: the first is for Kafka, the second for NATS", kafka[0], nats[0]))
	case len(kafka) > 0 && t.topic == "":
		errs = append(errs, errors.New("--topic is missing"))
	case len(nats) > 0 && t.subject == "":
		errs = append(errs, errors.New("--subject is missing"))
	case t.file == "" && len(kafka)+len(nats) == 0:
		errs = append(errs, errors.New("whose dead letters? want -c FILE, or --topic for Kafka, or --subject for NATS"))
	}
	if t.consumer != "" && t.file == "" {
		errs = append(errs, errors.New("--consumer is set and --config is not"))
	}
	if t.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout is %v, want more than 0", t.timeout))
	}
	return errors.Join(errs...)
}

// A deadBox is what a dlq command works with.
type deadBox struct {
	*deadletters.Letters
	topic     string
	store     deadletters.Store
	publisher broker.Publisher
	shut      func() // the store
	kafka     bool   // else JetStream
	// doc, name and consumer are of the file; nil: there is none.
	doc      *config.Document
	name     string
	consumer *config.Consumer
	shared   bool // another consumer of the file has letters in the topic, too
}

// narrow keeps a command to the letters of the consumer that it was given, where others of the file have theirs in the same
// topic: a purge would delete those, and a replay to the handler would have them handled by another's routes. Who names letters,
// or who gave them up, has said which.
func (b *deadBox) narrow(f *deadletters.Filter) {
	if b.shared && f.Handler == "" && len(f.Places) == 0 {
		f.Handler = b.name
	}
}

// order is the one in which the consumer handles its messages; empty: none, or nobody knows.
func (b *deadBox) order() consumer.Order {
	if b.consumer == nil || b.consumer.Order == consumer.OrderNone {
		return ""
	}
	return b.consumer.Order
}

// embedded says whether the letters are on the embedded server of the file.
func (b *deadBox) embedded() bool {
	return b.consumer != nil && b.consumer.Source.Embedded()
}

// end closes the box, and tells what was passed over.
func (b *deadBox) end(stderr io.Writer) error {
	if u := b.Unreadable(); u.Count > 0 {
		fmt.Fprintf(stderr, "warning: passed over what cannot be read in the journal of replays, %s (%d):\n", escape(u.Topic), u.Count)
		for _, r := range u.First {
			fmt.Fprintf(stderr, "  %s: %s\n", deadletters.FormatPlace(r.Place), shown([]byte(r.Err.Error()), 200))
		}
	}
	if u := b.Unreadable(); u.Cut {
		fmt.Fprintf(stderr, "warning: records are gone from the journal of replays, %s: "+
			"letters that were replayed may count as waiting\n", escape(u.Topic))
	}
	return b.close()
}

// close is called once, at the end.
func (b *deadBox) close() error {
	b.shut()
	return closePublisher(b.publisher)
}

// named refuses letters that are named by the caller and are not there, or are named as on the other broker.
func (b *deadBox) named(ctx context.Context, places []broker.Place) error {
	var errs []error
	for _, p := range places {
		switch name := deadletters.FormatPlace(p); {
		case b.kafka && p.Partition < 0:
			errs = append(errs, fmt.Errorf("letter %s: on Kafka a letter is named by partition/offset, as in 0/17", name))
		case !b.kafka && p.Partition >= 0:
			errs = append(errs, fmt.Errorf("letter %s: on JetStream a letter is named by its sequence, as in 17", name))
		}
	}
	if len(errs) > 0 {
		return usageError{errors.Join(errs...)}
	}
	missing, err := b.Missing(ctx, places)
	if err != nil {
		return err
	}
	for _, p := range missing {
		errs = append(errs, fmt.Errorf("%w: %s in %s", deadletters.ErrNoLetter, deadletters.FormatPlace(p), escape(b.topic)))
	}
	return errors.Join(errs...)
}

// mayPublish says whether the broker can take a name as where a letter goes.
func (b *deadBox) mayPublish(to string) bool { return mayPublish(b.kafka, to) }

func mayPublish(kafka bool, to string) bool {
	if kafka {
		return kafkabroker.ValidTopic(to)
	}
	return natssubject.Publishable(to)
}

// mayReplay refuses a --to that the broker cannot take, and that of the letters themselves.
func (b *deadBox) mayReplay(to string) error {
	if to == b.topic {
		return usageError{fmt.Errorf("--to is %q: %w", to, deadletters.ErrCircle)}
	}
	if to == "" || b.mayPublish(to) {
		return nil
	}
	if b.kafka {
		return usageError{fmt.Errorf("--to is %q, want a topic's name", to)}
	}
	return usageError{fmt.Errorf("--to is %q, want a subject without wildcards", to)}
}

// open makes what the flags say, and finds out whether the broker and the topic are there. Mistakes in flags and file are usage
// errors.
func (t *dlqTarget) open(ctx context.Context) (*deadBox, error) {
	removeLeftEdits()
	b, err := t.box(ctx)
	if err != nil {
		return nil, usageError{err}
	}
	if t.ofKafka != "" && !b.kafka {
		err := usageError{fmt.Errorf("%s is set, which is for Kafka, and the letters are on NATS", t.ofKafka)}
		return nil, errors.Join(err, b.close())
	}
	if b.Letters, err = deadletters.New(deadletters.Config{Topic: b.topic, Store: b.store, Publisher: b.publisher}); err != nil {
		return nil, errors.Join(err, b.close())
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	if err := b.Reach(ctx); err != nil {
		if b.embedded() {
			err = embeddedAway(err, t.file)
		}
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (t *dlqTarget) box(ctx context.Context) (b *deadBox, err error) {
	switch {
	case t.file != "":
		return t.fileBox(ctx)
	case t.topic != "":
		b, err = kafkaBox(t.topic, kafkabroker.PublisherConfig{
			Connection: kafkabroker.Connection{Brokers: kafkaBrokers(t.brokers), ClientID: "longshore-dlq"}})
	default:
		b, err = natsBox(t.subject, natsbroker.Connection{URLs: []string{natsURL(t.url)}, CredsFile: t.creds,
			Name: "longshore dlq"}, "")
	}
	return b, ofFlags(err)
}

// load reads the file, once.
func (t *dlqTarget) load(ctx context.Context) (_ *config.Document, err error) {
	if t.doc == nil {
		if t.doc, err = loadFile(ctx, t.file, t.adapters); err != nil {
			return nil, err
		}
	}
	return t.doc, t.doc.ErrOf(config.NeedsBroker)
}

func (t *dlqTarget) fileBox(ctx context.Context) (*deadBox, error) {
	doc, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	name, err := chooseConsumer(&doc.File, t.consumer)
	if err != nil {
		return nil, err
	}
	c := doc.File.Consumers[name]
	to, err := t.chooseTarget(name, c)
	if err != nil {
		return nil, err
	}
	var b *deadBox
	switch n, core, k := c.Source.NATS, c.Source.NATSCore, c.Source.Kafka; {
	case n != nil:
		cfg := n.Adapter(embeddedURL(doc.File.Embedded))
		b, err = natsBox(to, cfg.Connection, cfg.Domain)
	case core != nil: // a stream takes them, if one has the subject
		b, err = natsBox(to, core.Adapter(embeddedURL(doc.File.Embedded)).Connection, "")
	case k != nil:
		b, err = kafkaBox(to, kafkabroker.PublisherConfig{
			Connection: k.Adapter().Connection, MaxMessageBytes: k.MaxPublishBytes, Partitioner: k.Partitioner})
	case c.Source.Other != nil:
		err = fmt.Errorf("the dead letters of consumer %s are on %s, which dlq does not know", name, c.Source.Other.Adapter)
	default:
		err = fmt.Errorf("consumer %s does not say on which broker its dead letters are", name)
	}
	if err != nil {
		return nil, err
	}
	b.doc, b.name, b.consumer, b.shared = doc, name, c, doc.File.SharesLetters(c, to)
	return b, nil
}

// chooseConsumer is the one of that name, or the only one with dead letters.
func chooseConsumer(f *config.File, name string) (string, error) {
	var all []string
	for _, n := range slices.Sorted(maps.Keys(f.Consumers)) {
		if f.Consumers[n].DeadLetter != nil {
			all = append(all, n)
		}
	}
	switch {
	case name != "" && f.Consumers[name] == nil:
		return "", fmt.Errorf("--consumer is %q, want one of the file's: %q", name, slices.Sorted(maps.Keys(f.Consumers)))
	case name != "" && !slices.Contains(all, name):
		return "", fmt.Errorf("--consumer is %q, which has no dead_letter", name)
	case name != "":
		return name, nil
	case len(all) == 0:
		return "", errors.New("no consumer of the file has dead_letter")
	case len(all) > 1:
		return "", fmt.Errorf("consumers %q have dead letters: choose one with --consumer", all)
	}
	return all[0], nil
}

// chooseTarget is the one of a consumer's targets of dead letters that is asked for, or its only one. Places are numbered in
// each of them, so that no command takes several.
func (t *dlqTarget) chooseTarget(name string, c *config.Consumer) (string, error) {
	flag, want := "--subject", t.subject
	if c.Source.Kafka != nil {
		flag, want = "--topic", t.topic
	}
	all := c.DeadLetter.Targets()
	switch {
	case c.Source.Other != nil || c.Source == (config.Source{}):
		return all[0], nil // dlq knows no other broker, and says so
	case want == "" && t.topic+t.subject != "":
		return "", fmt.Errorf("the dead letters of consumer %s are chosen with %s", name, flag)
	case want != "" && !slices.Contains(all, want):
		return "", fmt.Errorf("%s is %q, and the dead letters of consumer %s go to %q", flag, want, name, all)
	case want != "":
		return want, nil
	case len(all) > 1:
		return "", fmt.Errorf("the dead letters of consumer %s go to %q: choose one with %s", name, all, flag)
	}
	return all[0], nil
}

func kafkaBox(topic string, cfg kafkabroker.PublisherConfig) (*deadBox, error) {
	cfg.ClientID = cmp.Or(cfg.ClientID, "longshore-dlq")
	view, err := kafkabroker.NewLogView(kafkabroker.LogViewConfig{Connection: cfg.Connection})
	if err != nil {
		return nil, err
	}
	p, err := kafkabroker.NewPublisher(cfg)
	if err != nil {
		view.Close()
		return nil, err
	}
	return &deadBox{topic: topic, store: view, publisher: p, shut: view.Close, kafka: true}, nil
}

func natsBox(subject string, at natsbroker.Connection, domain string) (*deadBox, error) {
	view, err := natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: at, Domain: domain})
	if err != nil {
		return nil, err
	}
	p, err := natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: at, Domain: domain})
	if err != nil {
		view.Close()
		return nil, err
	}
	return &deadBox{topic: subject, store: view, publisher: p, shut: view.Close}, nil
}
