package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"
	"github.com/rs/zerolog"
)

// A demoBroker is where the demo takes place: a stream or topic that is its own, and empty.
type demoBroker struct {
	source    broker.Source
	publisher broker.Publisher
	topic     string
	// clear takes away what was made. After the consumer's run.
	clear func() error
}

const (
	demoStream   = "DEMO"
	demoSubject  = "demo.events"
	demoConsumer = "demo-workers"
	// demoPartitions are those of the demo's topic.
	demoPartitions = 8
	// venueTimeout is for taking topic and group away.
	venueTimeout = 10 * time.Second
)

// natsDemoBroker is an embedded server with its file store in a temporary folder.
func natsDemoBroker(ctx context.Context) (v demoBroker, err error) {
	dir, err := os.MkdirTemp("", "longshore-demo-")
	if err != nil {
		return v, fmt.Errorf("making a folder for the file store: %w", err)
	}
	srv, err := startNATS(ctx, zerolog.Nop(), dir, server.RANDOM_PORT) // the view has the terminal
	if err != nil {
		return v, errors.Join(err, os.RemoveAll(dir))
	}
	v = demoBroker{topic: demoSubject, clear: func() error { srv.stop(); return os.RemoveAll(dir) }}
	at := natsbroker.Connection{URLs: []string{srv.url}}
	v.source, err = natsbroker.NewSource(natsbroker.Config{
		Connection: at, Stream: demoStream, Consumer: demoConsumer,
	})
	if err == nil {
		v.publisher, err = natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: at})
	}
	if err == nil {
		err = srv.ensureStreams(ctx, []stream{{demoStream, []string{demoSubject}}})
	}
	if err != nil {
		return v, errors.Join(err, v.clear())
	}
	return v, nil
}

// demoFlagOf is flagOf for the demo.
var demoFlagOf = map[broker.Field]string{"Brokers": "--kafka"}

// kafkaDemoBroker is a topic and a group on a broker, both with a name that nobody has.
func kafkaDemoBroker(ctx context.Context, brokers []string) (v demoBroker, err error) {
	name := "longshore-demo-" + nuid.Next()
	at := kafkabroker.Connection{Brokers: brokers, ClientID: "longshore-demo"}
	v.topic = name
	if v.source, err = kafkabroker.NewSource(kafkabroker.Config{Connection: at, Group: name, Topics: []string{name}}); err != nil {
		return v, usageError{ofFlagsOf(err, demoFlagOf)}
	}
	if v.publisher, err = kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: at}); err != nil {
		return v, usageError{ofFlagsOf(err, demoFlagOf)}
	}
	admin, err := kafkabroker.NewAdmin(at)
	if err != nil {
		return v, usageError{ofFlagsOf(err, demoFlagOf)}
	}
	if err := admin.CreateTopic(ctx, name, demoPartitions); err != nil {
		admin.Close()
		return v, err
	}
	v.clear = func() error {
		defer admin.Close()
		ctx, cancel := context.WithTimeout(context.Background(), venueTimeout)
		defer cancel()
		return errors.Join(admin.DeleteGroup(ctx, name), admin.DeleteTopic(ctx, name))
	}
	return v, nil
}
