package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/spf13/cobra"
)

const (
	defaultServer = "nats://127.0.0.1:4222"
	defaultBroker = "127.0.0.1:9092"
)

// A target is where produce publishes to: a subject of NATS, or a topic of Kafka when a flag of Kafka's is set.
type target struct {
	url, creds, subject string
	brokers             []string
	topic               string
	partitioner         string
	kafka               bool
}

func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.url, "url", "", "NATS server (default $NATS_URL, or "+defaultServer+")")
	f.StringVar(&t.creds, "creds", "", "NATS credentials file")
	f.StringVar(&t.subject, "subject", "orders.created", "NATS subject to publish to; a stream must take it")
	f.StringSliceVar(&t.brokers, "brokers", nil, "Kafka brokers, host:port (default $KAFKA_BROKERS, or "+defaultBroker+")")
	f.StringVar(&t.topic, "topic", "orders", "Kafka topic to publish to; it must be there")
	f.StringVar(&t.partitioner, "partitioner", "murmur2", "how a key chooses its partition of the Kafka topic, as the other "+
		"producers have it:\nmurmur2, fnv1a, fnv1a_reference, crc32 or crc32_consistent")
	_ = cmd.MarkFlagFilename("creds", "creds")
}

// choose finds out which broker is meant.
func (t *target) choose(cmd *cobra.Command) error {
	nats := setFlags(cmd, "url", "creds", "subject")
	kafka := setFlags(cmd, "brokers", "topic", "partitioner")
	if len(nats) > 0 && len(kafka) > 0 {
		return fmt.Errorf("%s and %s are set: the first is for NATS, the second for Kafka", nats[0], kafka[0])
	}
	t.kafka = len(kafka) > 0
	switch {
	case t.kafka && t.topic == "":
		return errors.New("--topic is empty")
	case !t.kafka && t.subject == "":
		return errors.New("--subject is empty")
	case mayPublish(t.kafka, t.name()):
		return nil
	case t.kafka:
		return fmt.Errorf("--topic is %q, want a topic's name", t.topic)
	}
	return fmt.Errorf("--subject is %q, want a subject without wildcards", t.subject)
}

// setFlags are those of the names that are set on the command line.
func setFlags(cmd *cobra.Command, names ...string) (set []string) {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			set = append(set, "--"+name)
		}
	}
	return set
}

// embedded says whether nobody named a server: then it is the one of a configuration file that has no url.
func (t *target) embedded() bool { return !t.kafka && natsURL(t.url) == defaultServer }

// flagOf is the flag that a field of an adapter's Config is set by.
var flagOf = map[broker.Field]string{"Brokers": "--brokers", "Group": "--group", "URLs": "--url", "CredsFile": "--creds",
	"Stream": "--stream", "Consumer": "--durable", "Partitioner": "--partitioner"}

// ofFlags is what an adapter found in its Config, said of the flags.
func ofFlags(err error) error { return ofFlagsOf(err, flagOf) }

func ofFlagsOf(err error, flagOf map[broker.Field]string) error {
	found := broker.FindingsOf(err)
	if found == nil {
		return err
	}
	name := func(at broker.Field) string {
		field, _, _ := strings.Cut(string(at), "[") // a flag has all of a list
		return cmp.Or(flagOf[broker.Field(field)], string(at))
	}
	errs := make([]error, len(found))
	for i, f := range found {
		errs[i] = errors.New(name(f.Field) + " " + f.Problem(name))
	}
	return errors.Join(errs...)
}

// name is of the subject or topic.
func (t *target) name() string {
	if t.kafka {
		return t.topic
	}
	return t.subject
}

// publisher makes one for messages of so many bytes.
func (t *target) publisher(size int) (broker.Publisher, error) {
	if !t.kafka {
		at := natsbroker.Connection{URLs: []string{natsURL(t.url)}, CredsFile: t.creds, Name: "longshore produce"}
		if err := at.CheckLogin(); err != nil { // it would be tried again and again, as all that may pass
			return nil, err
		}
		return natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: at})
	}
	return kafkabroker.NewPublisher(kafkabroker.PublisherConfig{
		Connection:      kafkabroker.Connection{Brokers: kafkaBrokers(t.brokers), ClientID: "longshore-produce"},
		MaxMessageBytes: size + 1024, // with key and id; what is too large is for the broker to say
		Partitioner:     t.partitioner,
	})
}

// topicPatience is how long a topic is waited for that is not there: a broker may not know yet what was just made.
const topicPatience = time.Second

// reach waits until Kafka answers, for at most so long, and says when it has no such topic: its publisher would only wait for
// one. JetStream refuses a subject that no stream takes at once.
func (t *target) reach(ctx context.Context, timeout time.Duration) error {
	if !t.kafka {
		return nil
	}
	at := kafkabroker.Connection{Brokers: kafkaBrokers(t.brokers), ClientID: "longshore-produce"}
	log, err := kafkabroker.NewLogView(kafkabroker.LogViewConfig{Connection: at})
	if err != nil {
		return usageError{err}
	}
	defer log.Close()
	over := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(ctx, over)
	defer cancel()
	var seen error // of the last try that was not cut short: that one only says that its time is over
	for begin := time.Now(); ; {
		_, err := log.Scan(ctx, broker.Scan{Topic: t.topic, Partitions: []int32{}}, nil) // of no partition: it only looks for the topic
		switch missing := errors.Is(err, broker.ErrNoTopic); {
		case err == nil:
			return nil
		case missing && time.Since(begin) >= topicPatience:
			return fmt.Errorf("there is no topic %q on %s: create it, or name another with --topic", t.topic,
				strings.Join(at.Brokers, ", "))
		case ctx.Err() != nil || !time.Now().Before(over): // a dial that is cut may return before ctx says that it has ended
			return fmt.Errorf("reaching the brokers: %w", cmp.Or(seen, err))
		}
		seen = err
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

func natsURL(flag string) string { return cmp.Or(flag, os.Getenv("NATS_URL"), defaultServer) }

func kafkaBrokers(flag []string) []string {
	if len(flag) > 0 {
		return flag
	}
	return strings.Split(cmp.Or(os.Getenv("KAFKA_BROKERS"), defaultBroker), ",")
}
