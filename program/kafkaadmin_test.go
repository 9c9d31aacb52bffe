package program

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// commitOffset commits an offset of partition 0 as somebody who is no member.
func commitOffset(ctx context.Context, t *testing.T, client *kgo.Client, group, topic string, offset int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Offset = offset
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic, of.TopicID, of.Partitions = topic, topicID(t, client, topic), append(of.Partitions, part)
	req.Topics = append(req.Topics, of)
	answer, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
}

// leftOnKafka are all topics and groups.
func leftOnKafka(t *testing.T, client *kgo.Client) (names []string) {
	t.Helper()
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = nil
	topics, err := meta.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics.Topics {
		names = append(names, "topic "+*topic.Topic)
	}
	groups, err := kmsg.NewPtrListGroupsRequest().RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		names = append(names, "group "+g.Group)
	}
	return names
}

// topicID is the broker's own name of a topic.
func topicID(t *testing.T, client *kgo.Client, topic string) [16]byte {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	of := kmsg.NewMetadataRequestTopic()
	of.Topic = &topic
	req.Topics = append(req.Topics, of)
	answer, err := req.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Topics[0].TopicID
}

// readOrders are the rights that docs/operations.md names, for the group workers.
var readOrders = []kfake.ACL{
	{Resource: kmsg.ACLResourceTypeTopic, Name: "orders", Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: kmsg.ACLOperationRead, Allow: true},
	{Resource: kmsg.ACLResourceTypeGroup, Name: "workers", Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: kmsg.ACLOperationRead, Allow: true},
	{Resource: kmsg.ACLResourceTypeTopic, Name: "orders-dead", Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: kmsg.ACLOperationWrite, Allow: true},
}

// publishAs publishes one message with a login.
func publishAs(t *testing.T, broker, user, password, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
