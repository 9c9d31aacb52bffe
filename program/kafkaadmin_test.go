package program

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitOffset commits an offset of partition 0 as somebody who is no member.
func commitOffset(ctx context.Context, client *kgo.Client, group, topic string, offset int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Offset = offset
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic, of.Partitions = topic, append(of.Partitions, part)
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
