package kafkabroker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

var (
	_ broker.Destinations = (*Publisher)(nil)
	_ broker.Retainer     = (*Publisher)(nil)
)

// Find implements broker.Destinations. A topic that the user may not see is an error that says so.
func (p *Publisher) Find(ctx context.Context, topic string) error {
	if !p.enter() {
		return broker.ErrClosed
	}
	defer p.under.Done()
	if err := p.cfg.probe(ctx, p.c.transport); err != nil {
		return fmt.Errorf("kafkabroker: looking for topic %s: %w", topic, err)
	}
	err := p.c.knows(ctx, topic)
	switch {
	case err == nil:
		return nil
	case codeOf(err) == kafka.UnknownTopicOrPartition:
		return fmt.Errorf("kafkabroker: %w: %s", broker.ErrNoTopic, topic)
	}
	return fmt.Errorf("kafkabroker: looking for topic %s: %w", topic, err)
}

// knows is nil where a broker knows a topic.
func (c *cluster) knows(ctx context.Context, name string) error {
	ts, err := c.topics(ctx, []string{name})
	if err != nil {
		return err
	}
	t, answered := ts[name]
	if !answered {
		return errShort
	}
	return t.err
}

// Retains implements broker.Retainer by the topic's settings, for whoever may read them (with ACLs, DescribeConfigs).
func (p *Publisher) Retains(ctx context.Context, topic string, d time.Duration) error {
	if !p.enter() {
		return nil
	}
	defer p.under.Done()
	values, err := p.c.topicSettings(ctx, topic, policySetting, retentionSetting)
	if err != nil {
		return nil
	}
	return forgets(topic, values, d)
}

// forgets says why a topic of such settings does not keep each message for so long; nil: it does.
func forgets(topic string, values map[string]string, d time.Duration) error {
	policy := values[policySetting]
	if strings.Contains(policy, "compact") {
		return fmt.Errorf("kafkabroker: topic %s is compacted (%s is %q): of the messages of a key only the last is kept", topic,
			policySetting, policy)
	}
	ms, err := strconv.ParseInt(values[retentionSetting], 10, 64)
	if err != nil || ms < 0 || !strings.Contains(policy, "delete") || ms > d.Milliseconds() {
		return nil
	}
	return fmt.Errorf("kafkabroker: topic %s keeps messages for %v only (%s), and they are to be there for %v", topic,
		time.Duration(ms)*time.Millisecond, retentionSetting, d)
}

// Create implements broker.Destinations, with the broker's own replication factor. It returns when a broker knows the topic, at
// most after RequestTimeout.
func (p *Publisher) Create(ctx context.Context, topic string) error {
	if !p.enter() {
		return broker.ErrClosed
	}
	defer p.under.Done()
	err := broker.CheckDestination(topic)
	if err == nil {
		err = p.cfg.probe(ctx, p.c.transport)
	}
	if err == nil {
		err = p.c.createLog(ctx, topic)
	}
	if err != nil {
		return fmt.Errorf("kafkabroker: creating topic %s: %w", topic, err)
	}
	return nil
}

// createLog makes a topic of one partition that keeps its messages for ever, as create does.
func (c *cluster) createLog(ctx context.Context, name string) error {
	return c.create(ctx, name, 1, [][2]string{{"retention.ms", "-1"}, {"retention.bytes", "-1"}, {"cleanup.policy", "delete"}})
}

// create makes a topic with the broker's own replication factor, and waits until a broker knows it, for the time of one exchange.
// nil where it is there already.
func (c *cluster) create(ctx context.Context, name string, partitions int32, options [][2]string) error {
	if !ValidTopic(name) {
		return kafka.InvalidTopic
	}
	if _, err := c.pick(ctx, controllerNode, keyCreateTopics, 4); err != nil {
		return err
	}
	r, err := c.do(ctx, controllerNode, keyCreateTopics, 4, createBody(name, partitions, options, c.timeout))
	if err == nil {
		err = readCreated(r, name)
	}
	if err != nil && codeOf(err) != kafka.TopicAlreadyExists {
		c.misrouted(controllerNode, err)
		return err
	}
	for over := time.Now().Add(c.timeout); ; pause(ctx, 2*retryWait) {
		err := c.knows(ctx, name)
		if err == nil || !moved(err) || ctx.Err() != nil || time.Now().After(over) {
			return err
		}
	}
}

// createBody is CreateTopics, version 4 (Apache Kafka's protocol guide), the first in which the broker chooses how many replicas
// there are.
func createBody(name string, partitions int32, options [][2]string, timeout time.Duration) []byte {
	w := writer{}
	w.array(1)
	w.str(name)
	w.i32(partitions)
	w.i16(-1)
	w.array(0) // the broker assigns replicas
	w.array(len(options))
	for _, option := range options {
		w.str(option[0])
		w.str(option[1])
	}
	w.i32(int32(timeout.Milliseconds()))
	w.bool(false) // validate only
	return w.b
}

func readCreated(r *reader, name string) error {
	r.i32()
	if r.array() != 1 || r.str() != name {
		return errShort
	}
	code, why := r.i16(), r.str()
	if err := r.err(); err != nil {
		return err
	}
	if code != 0 && why != "" {
		return fmt.Errorf("%w: %q", codeErr(code), why)
	}
	return codeErr(code)
}
