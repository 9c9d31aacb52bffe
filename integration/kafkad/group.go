//go:build unix

package kafkad

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CommitOffset sets a group's position in a partition, as an administrator does. The group must not have members.
func (k *Cluster) CommitOffset(ctx context.Context, group, topic string, partition int, offset int64) error {
	return k.admin(ctx, "committing for group "+group, func(ctx context.Context, c *kadm.Client) error {
		var o kadm.Offsets
		o.AddOffset(topic, int32(partition), offset, -1)
		return c.CommitAllOffsets(ctx, group, o)
	})
}

// awaitCoordinator waits until groups can be used: the first who asks for one makes Kafka create the topic of their offsets.
func (k *Cluster) awaitCoordinator() error {
	return k.admin(context.Background(), "waiting for groups", func(ctx context.Context, c *kadm.Client) error {
		for {
			answer, err := c.FetchOffsets(ctx, "nobody")
			if err = errors.Join(err, answer.Error()); err == nil {
				return nil
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			}
		}
	})
}

// Coordinator is the node that coordinates a group, counted from 0.
func (k *Cluster) Coordinator(ctx context.Context, group string) (i int, err error) {
	err = k.admin(ctx, "finding the coordinator of group "+group, func(ctx context.Context, c *kadm.Client) error {
		found := c.FindGroupCoordinators(ctx, group)
		i = slices.IndexFunc(k.nodes, func(n *node) bool { return int32(n.id) == found[group].NodeID })
		if found.Error() == nil && i < 0 {
			return fmt.Errorf("node %d is none of ours", found[group].NodeID)
		}
		return found.Error()
	})
	return i, err
}

// SetGroup changes settings of a group of the consumer protocol.
func (k *Cluster) SetGroup(ctx context.Context, group string, settings map[string]string) error {
	return k.client(ctx, "setting up group "+group, func(ctx context.Context, c *kgo.Client) error {
		resource := kmsg.NewIncrementalAlterConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
		for name, value := range settings {
			setting := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			setting.Name, setting.Value = name, &value
			resource.Configs = append(resource.Configs, setting)
		}
		request := kmsg.NewPtrIncrementalAlterConfigsRequest()
		request.Resources = append(request.Resources, resource)
		answer, err := request.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(answer.Resources[0].ErrorCode)
	})
}

// removeModern takes the member out of a group of the consumer protocol; false: it is none.
func removeModern(ctx context.Context, c *kgo.Client, group, clientID string) (bool, error) {
	request := kmsg.NewPtrConsumerGroupDescribeRequest()
	request.Groups = []string{group}
	answer, err := request.RequestWith(ctx, c)
	if err != nil || answer.Groups[0].ErrorCode != 0 {
		return false, err
	}
	for _, m := range answer.Groups[0].Members {
		if m.ClientID != clientID {
			continue
		}
		leave := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		leave.Group, leave.MemberID, leave.MemberEpoch = group, m.MemberID, -1
		left, err := leave.RequestWith(ctx, c)
		if err != nil {
			return true, err
		}
		return true, kerr.ErrorForCode(left.ErrorCode)
	}
	return false, nil
}

// RemoveMember takes the member with that client id out of a group, as an administrator can.
func (k *Cluster) RemoveMember(ctx context.Context, group, clientID string) error {
	return k.client(ctx, "removing a member of group "+group, func(ctx context.Context, c *kgo.Client) error {
		if removed, err := removeModern(ctx, c, group, clientID); removed || err != nil {
			return err
		}
		groups, err := kadm.NewClient(c).DescribeGroups(ctx, group)
		if err = errors.Join(err, groups.Error()); err != nil {
			return err
		}
		members := groups[group].Members
		i := slices.IndexFunc(members, func(m kadm.DescribedGroupMember) bool { return m.ClientID == clientID })
		if i < 0 {
			return fmt.Errorf("no member has client id %s", clientID)
		}
		request := kmsg.NewPtrLeaveGroupRequest()
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = members[i].MemberID
		request.Group, request.Members = group, append(request.Members, member)
		answer, err := request.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		return errors.Join(kerr.ErrorForCode(answer.ErrorCode), kerr.ErrorForCode(answer.Members[0].ErrorCode))
	})
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
	a, err := apacheTools()
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
