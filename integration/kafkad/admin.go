//go:build unix

package kafkad

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// adminLimit bounds one administrative task, leader elections included. A broker on a slow disk takes more than half a minute to
// make a thousand partitions, and does nothing else meanwhile.
const adminLimit = 2 * time.Minute

// CreateTopic makes a topic with the replicas that the cluster has, and waits until each partition has a leader. configs may be
// nil.
func (k *Cluster) CreateTopic(ctx context.Context, name string, partitions int, configs map[string]string) error {
	values := map[string]*string{}
	for key, value := range configs {
		values[key] = &value
	}
	return k.admin(ctx, "creating topic "+name, func(ctx context.Context, c *kadm.Client) error {
		if _, err := c.CreateTopic(ctx, int32(partitions), -1, values, name); err != nil {
			return err
		}
		return awaitLeaders(ctx, c, name, partitions, func(p kadm.PartitionDetail) bool { return p.Leader >= 0 })
	})
}

// AddPartitions lets a topic have so many partitions, and waits until each has a leader.
func (k *Cluster) AddPartitions(ctx context.Context, name string, partitions int) error {
	return k.admin(ctx, "adding partitions to "+name, func(ctx context.Context, c *kadm.Client) error {
		answer, err := c.UpdatePartitions(ctx, partitions, name)
		if err = errors.Join(err, answer.Error()); err != nil {
			return err
		}
		return awaitLeaders(ctx, c, name, partitions, func(p kadm.PartitionDetail) bool { return p.Leader >= 0 })
	})
}

// MoveLeaders gives each partition of a topic the next of its replicas for a leader, in good order, and waits until they lead.
func (k *Cluster) MoveLeaders(ctx context.Context, name string) error {
	return k.admin(ctx, "moving the leaders of "+name, func(ctx context.Context, c *kadm.Client) error {
		topics, err := c.ListTopicsWithInternal(ctx, name)
		if err = errors.Join(err, topics.Error()); err != nil {
			return err
		}
		var order kadm.AlterPartitionAssignmentsReq
		next := map[int32]int32{}
		for no, p := range topics[name].Partitions {
			i := (slices.Index(p.Replicas, p.Leader) + 1) % len(p.Replicas)
			next[no] = p.Replicas[i]
			order.Assign(name, no, slices.Concat(p.Replicas[i:], p.Replicas[:i]))
		}
		altered, err := c.AlterPartitionAssignments(ctx, order)
		if err = errors.Join(err, altered.Error()); err != nil {
			return err
		}
		return awaitLeaders(ctx, c, name, len(next), func(p kadm.PartitionDetail) bool {
			if p.Leader != next[p.Partition] {
				// The first of the replicas leads when asked to, once the order has come into effect.
				_, _ = c.ElectLeaders(ctx, kadm.ElectPreferredReplica, topics.TopicsSet())
			}
			return p.Leader == next[p.Partition]
		})
	})
}

// awaitLeaders waits until clients that ask for the topic get all of it, with leaders that are right.
func awaitLeaders(ctx context.Context, c *kadm.Client, name string, partitions int, right func(kadm.PartitionDetail) bool) error {
	for {
		topics, err := c.ListTopicsWithInternal(ctx, name)
		if err != nil {
			return err
		}
		led := 0
		for _, p := range topics[name].Partitions {
			if p.Err == nil && right(p) {
				led++
			}
		}
		if led == partitions {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d partitions have their leader: %w", led, partitions, ctx.Err())
		}
	}
}

// SetFeature lets the cluster agree on another level of a feature, such as transaction.version, and waits until it tells that.
func (k *Cluster) SetFeature(ctx context.Context, name string, level int16) error {
	return k.client(ctx, fmt.Sprintf("setting %s to %d", name, level), func(ctx context.Context, c *kgo.Client) error {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		update := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		was, err := toldFeature(ctx, c, name)
		if err != nil || was == level {
			return err
		}
		update.Feature, update.MaxVersionLevel, update.UpgradeType = name, level, upgrade
		if level < was {
			update.UpgradeType = safeDowngrade
		}
		req.FeatureUpdates = append(req.FeatureUpdates, update)
		answer, err := req.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(answer.ErrorCode)
		for _, r := range answer.Results {
			err = errors.Join(err, kerr.ErrorForCode(r.ErrorCode))
		}
		for err == nil {
			if was, err = toldFeature(ctx, c, name); was == level {
				return err
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		return err
	})
}

// What a request says of a level that it raises, or lowers.
const (
	upgrade       = 1
	safeDowngrade = 2
)

// toldFeature is the least level of a feature that a broker tells of.
func toldFeature(ctx context.Context, c *kgo.Client, name string) (least int16, err error) {
	least = math.MaxInt16
	for _, shard := range c.RequestSharded(ctx, kmsg.NewPtrApiVersionsRequest()) {
		if shard.Err != nil {
			return 0, shard.Err
		}
		level := int16(0)
		for _, f := range shard.Resp.(*kmsg.ApiVersionsResponse).FinalizedFeatures {
			if f.Name == name {
				level = f.MaxVersionLevel
			}
		}
		least = min(least, level)
	}
	return least, nil
}

// SetPassword makes a user who can log in with SCRAM-SHA-256 and SCRAM-SHA-512.
func (k *Cluster) SetPassword(ctx context.Context, user, password string) error {
	return k.admin(ctx, "setting the password of "+user, func(ctx context.Context, c *kadm.Client) error {
		for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} { // one request may name a user once
			entry := kadm.UpsertSCRAM{User: user, Mechanism: mechanism, Iterations: 4096, Password: password}
			answer, err := c.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{entry})
			if err = errors.Join(err, answer.Error()); err != nil {
				return err
			}
		}
		return nil
	})
}

// Replicas are the nodes that have a partition, counted from 0, the leader first.
func (k *Cluster) Replicas(ctx context.Context, topic string, partition int32) (nodes []int, err error) {
	err = k.admin(ctx, "asking for the replicas of "+topic, func(ctx context.Context, c *kadm.Client) error {
		topics, err := c.ListTopics(ctx, topic)
		if err = errors.Join(err, topics.Error()); err != nil {
			return err
		}
		p := topics[topic].Partitions[partition]
		ids := append([]int32{p.Leader}, slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool { return id == p.Leader })...)
		for _, id := range ids {
			nodes = append(nodes, slices.IndexFunc(k.nodes, func(n *node) bool { return int32(n.id) == id }))
		}
		return nil
	})
	return nodes, err
}

// UnderReplicated is how many partitions have a replica that is not in sync.
func (k *Cluster) UnderReplicated(ctx context.Context) (n int, err error) {
	err = k.admin(ctx, "reading who is in sync", func(ctx context.Context, c *kadm.Client) error {
		topics, err := c.ListTopicsWithInternal(ctx)
		if err != nil {
			return err
		}
		topics.EachPartition(func(p kadm.PartitionDetail) {
			if len(p.ISR) < len(p.Replicas) {
				n++
			}
		})
		return nil
	})
	return n, err
}

// DeleteRecords removes what stands before an offset in a partition, as retention does.
func (k *Cluster) DeleteRecords(ctx context.Context, topic string, partition int, before int64) error {
	return k.admin(ctx, fmt.Sprintf("deleting records of %s/%d", topic, partition), func(ctx context.Context, c *kadm.Client) error {
		var o kadm.Offsets
		o.AddOffset(topic, int32(partition), before, -1)
		answer, err := c.DeleteRecords(ctx, o)
		return errors.Join(err, answer.Error())
	})
}

func (k *Cluster) admin(ctx context.Context, what string, do func(context.Context, *kadm.Client) error) error {
	return k.client(ctx, what, func(ctx context.Context, c *kgo.Client) error { return do(ctx, kadm.NewClient(c)) })
}

// client does one task with a client of its own, which knows nothing old.
func (k *Cluster) client(ctx context.Context, what string, do func(context.Context, *kgo.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.MetadataMinAge(10*time.Millisecond))
	if err == nil {
		defer client.Close()
		err = do(ctx, client)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
