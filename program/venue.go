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
	kafka "github.com/segmentio/kafka-go"
)

// A venue is where the demo takes place: a stream or topic that is its own, and empty.
type venue struct {
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
	// venueTimeout is for making a topic, and for taking it away.
	venueTimeout = 10 * time.Second
)

// natsVenue is an embedded server with its file store in a temporary folder.
func natsVenue(ctx context.Context) (v venue, err error) {
	dir, err := os.MkdirTemp("", "longshore-demo-")
	if err != nil {
		return v, fmt.Errorf("making a folder for the file store: %w", err)
	}
	srv, err := startNATS(dir, server.RANDOM_PORT)
	if err != nil {
		return v, errors.Join(err, os.RemoveAll(dir))
	}
	v = venue{topic: demoSubject, clear: func() error { srv.stop(); return os.RemoveAll(dir) }}
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

// kafkaVenue is a topic and a group on a broker, both with a name that nobody has.
func kafkaVenue(ctx context.Context, brokers []string) (v venue, err error) {
	name := "longshore-demo-" + nuid.Next()
	at := kafkabroker.Connection{Brokers: brokers, ClientID: "longshore-demo"}
	v.topic = name
	if v.source, err = kafkabroker.NewSource(kafkabroker.Config{Connection: at, Group: name, Topics: []string{name}}); err != nil {
		return v, usageError{err}
	}
	if v.publisher, err = kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: at}); err != nil {
		return v, usageError{err}
	}
	if err := reach(ctx, brokers); err != nil {
		return v, err
	}
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: venueTimeout, Transport: &kafka.Transport{DialTimeout: 5 * time.Second}}
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: name, NumPartitions: demoPartitions, ReplicationFactor: -1}},
	})
	if err == nil {
		err = made.Errors[name]
	}
	if err != nil {
		closeIdle(client)
		return v, fmt.Errorf("creating the topic %s: %w", name, err)
	}
	v.clear = func() error {
		defer closeIdle(client)
		ctx, cancel := context.WithTimeout(context.Background(), venueTimeout)
		defer cancel()
		return errors.Join(deleteGroup(ctx, client, name), deleteTopic(ctx, client, name))
	}
	return v, nil
}

// reach says why none of the brokers can be reached; a request that finds none only says that its time is over.
func reach(ctx context.Context, brokers []string) (err error) {
	dialer := kafka.Dialer{ClientID: "longshore-demo", Timeout: 5 * time.Second}
	for _, b := range brokers {
		conn, e := dialer.DialContext(ctx, "tcp", b)
		if e == nil {
			return conn.Close()
		}
		err = errors.Join(err, fmt.Errorf("connecting to %s: %w", b, e))
	}
	return err
}

func closeIdle(c *kafka.Client) { c.Transport.(*kafka.Transport).CloseIdleConnections() }

// deleteGroup deletes the group, if it ever came to be.
func deleteGroup(ctx context.Context, c *kafka.Client, name string) error {
	answer, err := c.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{name}})
	if err == nil {
		err = answer.Errors[name]
	}
	if err != nil && !errors.Is(err, kafka.GroupIdNotFound) {
		return fmt.Errorf("deleting the group %s: %w", name, err)
	}
	return nil
}

func deleteTopic(ctx context.Context, c *kafka.Client, name string) error {
	answer, err := c.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{name}})
	if err == nil {
		err = answer.Errors[name]
	}
	if err != nil {
		return fmt.Errorf("deleting the topic %s: %w", name, err)
	}
	return nil
}
