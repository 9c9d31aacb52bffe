//go:build unix

package kafkad

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// adminLimit bounds one administrative request, leader elections included.
const adminLimit = 30 * time.Second

// CreateTopic makes a topic with the replicas that the cluster has, and waits until each partition has a leader. configs may be nil.
func (k *Cluster) CreateTopic(ctx context.Context, name string, partitions int, configs map[string]string) error {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, int32(partitions), -1
	for key, value := range configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = key, &value
		topic.Configs = append(topic.Configs, c)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics, request.TimeoutMillis = append(request.Topics, topic), int32(adminLimit.Milliseconds())
	return k.admin(ctx, "creating topic "+name, func(ctx context.Context, c *kgo.Client) error {
		response, err := request.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(response.Topics[0].ErrorCode); err != nil {
			return err
		}
		return awaitLeaders(ctx, c, name, partitions)
	})
}

// awaitLeaders waits until clients that ask for the topic get all of it.
func awaitLeaders(ctx context.Context, c *kgo.Client, name string, partitions int) error {
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	request.Topics = append(request.Topics, topic)
	for {
		response, err := request.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		led := 0
		for _, p := range response.Topics[0].Partitions {
			if p.ErrorCode == 0 && p.Leader >= 0 {
				led++
			}
		}
		if led == partitions {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d partitions have a leader: %w", led, partitions, ctx.Err())
		}
	}
}

// DeleteRecords removes what stands before an offset in a partition, as retention does.
func (k *Cluster) DeleteRecords(ctx context.Context, topic string, partition int, before int64) error {
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = int32(partition), before
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	request := kmsg.NewPtrDeleteRecordsRequest()
	request.Topics, request.TimeoutMillis = append(request.Topics, t), int32(adminLimit.Milliseconds())
	return k.admin(ctx, fmt.Sprintf("deleting records of %s/%d", topic, partition), func(ctx context.Context, c *kgo.Client) error {
		response, err := request.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode)
	})
}

// admin runs one request with a client of its own, which knows nothing old.
func (k *Cluster) admin(ctx context.Context, what string, do func(context.Context, *kgo.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
	if err == nil {
		defer client.Close()
		err = do(ctx, client)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Progress is what Kafka's own tool says of one partition of a group.
type Progress struct {
	Topic     string
	Partition int
	// Committed offset, end of the log, and what lies between. Committed and Lag are -1 where nothing is committed.
	Committed, End, Lag int64
}

// ErrNoTool: Kafka's tools cannot be run here.
var ErrNoTool = errors.New("there are no tools of Kafka here")

// DescribeGroup asks Kafka's consumer-groups tool, which knows nothing of us.
func (k *Cluster) DescribeGroup(group string) ([]Progress, error) {
	a, err := apache()
	if errors.Is(err, errUnavailable) || !k.Real() {
		return nil, ErrNoTool
	}
	if err != nil {
		return nil, err
	}
	out, err := a.run("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
		"--bootstrap-server", strings.Join(k.Brokers(), ","), "--describe", "--offsets", "--group", group)
	if err != nil {
		return nil, err
	}
	return parseGroup(out)
}

// parseGroup reads the table: a line of names, in which GROUP is the first, and one line for each partition.
func parseGroup(out string) ([]Progress, error) {
	var ps []Progress
	var columns map[string]int
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		switch {
		case len(words) > 0 && words[0] == "GROUP":
			columns = map[string]int{}
			for i, w := range words {
				columns[w] = i
			}
		case columns != nil && len(words) >= len(columns):
			p, err := parseProgress(words, columns)
			if err != nil {
				return nil, fmt.Errorf("consumer-groups says %q: %w", strings.TrimSpace(line), err)
			}
			ps = append(ps, p)
		}
	}
	if len(ps) == 0 {
		return nil, fmt.Errorf("consumer-groups has no table: %q", out)
	}
	return ps, nil
}

func parseProgress(words []string, columns map[string]int) (p Progress, err error) {
	number := func(column string) int64 {
		i, ok := columns[column]
		if !ok {
			err = errors.Join(err, fmt.Errorf("no column %s", column))
			return 0
		}
		if words[i] == "-" {
			return -1
		}
		n, bad := strconv.ParseInt(words[i], 10, 64)
		err = errors.Join(err, bad)
		return n
	}
	if i, ok := columns["TOPIC"]; ok {
		p.Topic = words[i]
	}
	p.Partition = int(number("PARTITION"))
	p.Committed, p.End, p.Lag = number("CURRENT-OFFSET"), number("LOG-END-OFFSET"), number("LAG")
	return p, err
}
