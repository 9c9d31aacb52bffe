package kafkabroker

import (
	"context"
	"fmt"
	"math"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/conftag"
)

// An Admin makes and deletes topics, and deletes groups. Safe for concurrent use.
type Admin struct {
	conn Connection
	c    *cluster
}

// NewAdmin checks c. It connects when it is first used.
func NewAdmin(c Connection) (*Admin, error) {
	c = c.withDefaults()
	f := findings()
	conftag.Check(f, c)
	c.validate(f)
	if err := f.Err(); err != nil {
		return nil, err
	}
	cl, err := c.connect()
	if err != nil {
		return nil, err
	}
	return &Admin{conn: c, c: cl}, nil
}

// persist does something once there is a connection: the Transport does not tell why it has none.
func (a *Admin) persist(ctx context.Context, do func() error) error {
	return a.conn.persist(ctx, func() error {
		if err := a.conn.probe(ctx, a.c.transport); err != nil {
			return err
		}
		return do()
	})
}

// Close closes the connections.
func (a *Admin) Close() { a.c.transport.CloseIdleConnections() }

// CreateTopic makes a topic with the broker's own replication factor and options. It returns when a broker knows the topic, at
// most after twice RequestTimeout. nil where it is there already. broker.ErrReserved where its name is one of Kafka's own.
func (a *Admin) CreateTopic(ctx context.Context, name string, partitions int) error {
	err := broker.CheckDestination(name)
	if err == nil && (partitions < 1 || partitions > maxPartitions) {
		err = fmt.Errorf("%d partitions: there can be 1 to %d", partitions, maxPartitions)
	}
	if err == nil {
		err = a.persist(ctx, func() error { return a.c.create(ctx, name, int32(partitions), nil) })
	}
	if err != nil {
		return fmt.Errorf("kafkabroker: creating topic %s: %w", name, err)
	}
	return nil
}

// maxPartitions bounds what a slip of the keyboard may ask a cluster for.
const maxPartitions = 100_000

// DeleteTopic deletes a topic and all that is in it, within twice RequestTimeout. broker.ErrReserved where its name is one of
// Kafka's own, broker.ErrNoTopic where there is none.
func (a *Admin) DeleteTopic(ctx context.Context, name string) error {
	err := broker.CheckDestination(name)
	if err == nil {
		err = a.persist(ctx, a.eraser(ctx, name))
	}
	if codeOf(err) == kafka.UnknownTopicOrPartition {
		err = fmt.Errorf("%w: %w", broker.ErrNoTopic, err)
	}
	if err != nil {
		return fmt.Errorf("kafkabroker: deleting topic %s: %w", name, err)
	}
	return nil
}

// eraser deletes a topic. Where the answer to an earlier try was lost, a topic that is not there is that one.
func (a *Admin) eraser(ctx context.Context, name string) func() error {
	unanswered := false
	return func() error {
		err := a.c.deleteTopic(ctx, name)
		if unanswered && codeOf(err) == kafka.UnknownTopicOrPartition {
			return nil
		}
		unanswered = unanswered || err != nil && codeOf(err) == 0 || codeOf(err) == kafka.RequestTimedOut
		return err
	}
}

// DeleteGroup deletes what is committed by a group that has no members. nil where there is no such group. It waits for a
// coordinator for RequestTimeout: a cluster whose first group this was has none for a moment.
func (a *Admin) DeleteGroup(ctx context.Context, name string) error {
	err := a.persist(ctx, func() error { return a.c.deleteGroup(ctx, name) })
	if err != nil && codeOf(err) != kafka.GroupIdNotFound {
		return fmt.Errorf("kafkabroker: deleting group %s: %w", name, err)
	}
	return nil
}

// deleteTopic is DeleteTopics, version 1 (Apache Kafka's protocol guide).
func (c *cluster) deleteTopic(ctx context.Context, name string) error {
	if !ValidTopic(name) { // one that is too long would be sent as another one: its length has 16 bits
		return kafka.UnknownTopicOrPartition
	}
	if _, err := c.pick(ctx, controllerNode, keyDeleteTopics, 1); err != nil {
		return err
	}
	w := writer{}
	w.array(1)
	w.str(name)
	w.i32(int32(c.timeout.Milliseconds()))
	r, err := c.do(ctx, controllerNode, keyDeleteTopics, 1, w.b)
	if err != nil {
		return err
	}
	err = readErased(r, name)
	c.misrouted(controllerNode, err)
	return err
}

// deleteGroup is DeleteGroups, version 1 (Apache Kafka's protocol guide).
func (c *cluster) deleteGroup(ctx context.Context, name string) error {
	if len(name) > math.MaxInt16 {
		return kafka.InvalidGroupId
	}
	w := writer{}
	w.array(1)
	w.str(name)
	r, err := (&coordinator{c: c, group: name}).do(ctx, keyDeleteGroups, 1, w.b)
	if err != nil {
		return err
	}
	return readErased(r, name)
}

// readErased reads what became of the one topic or group that was to go.
func readErased(r *reader, name string) error {
	r.i32() // throttled
	if r.array() != 1 || r.str() != name {
		return errShort
	}
	code := r.i16()
	if err := r.err(); err != nil {
		return err
	}
	return codeErr(code)
}
