//go:build unix

package integration

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/integration/kafkad"
)

const offsetsTopic = "__consumer_offsets"

// audit reads every commit of the group where the broker wrote it down, and returns those that go back.
func (s *kafkaSystem) audit(t *testing.T) []string {
	t.Helper()
	if !s.cluster.Real() {
		return nil // the fake has no such topic
	}
	commits := s.commits(t)
	if len(commits) == 0 {
		t.Errorf("%s has no commit of group %s: nothing was audited", offsetsTopic, s.group)
	}
	return rewinds(commits)
}

// rewinds tells of the commits that move their partition back.
func rewinds(commits []commit) (found []string) {
	last := map[int32]int64{}
	for i, c := range commits {
		if was := last[c.partition]; c.offset < was {
			found = append(found, fmt.Sprintf("commit %d of %d moves partition %d back, from %d to %d", i+1, len(commits), c.partition,
				was, c.offset))
		}
		last[c.partition] = c.offset
	}
	return found
}

// A commit is one committed offset, in the order in which the coordinator took them.
type commit struct {
	partition int32
	offset    int64
}

// commits reads the coordinator's own log.
func (s *kafkaSystem) commits(t *testing.T) (all []commit) {
	t.Helper()
	topics, err := s.admin.ListTopicsWithInternal(t.Context(), offsetsTopic)
	if err = errors.Join(err, topics.Error()); err != nil {
		t.Fatal(err)
	}
	for r := range s.records(t, offsetsTopic, coordinatedIn(s.group, int32(len(topics[offsetsTopic].Partitions)))) {
		if c, ok := s.ours(r); ok {
			all = append(all, c)
		}
	}
	return all
}

// ours decodes a record of the coordinator's log, where it is a commit of our group.
func (s *kafkaSystem) ours(r *kgo.Record) (commit, bool) {
	var key kmsg.OffsetCommitKey
	var value kmsg.OffsetCommitValue
	// Keys of other versions belong to other kinds of records; one without a value removes a commit.
	if len(r.Key) < 2 || r.Key[0] != 0 || r.Key[1] > 1 || r.Value == nil {
		return commit{}, false
	}
	if key.ReadFrom(r.Key) != nil || key.Group != s.group || key.Topic != s.topic || value.ReadFrom(r.Value) != nil {
		return commit{}, false
	}
	return commit{key.Partition, value.Offset}, true
}

// coordinatedIn is the partition in which Kafka keeps a group: Java's hash of its name.
func coordinatedIn(group string, partitions int32) int32 {
	var hash int32
	for _, c := range []byte(group) { // ASCII, so bytes are Java's chars
		hash = 31*hash + int32(c)
	}
	if hash == math.MinInt32 {
		return 0
	}
	return max(hash, -hash) % partitions
}

// toolAgrees asks Kafka's own consumer-groups: every partition is committed up to its end.
func (s *kafkaSystem) toolAgrees(t *testing.T) {
	t.Helper()
	ps, err := s.cluster.DescribeGroup(s.group)
	if errors.Is(err, kafkad.ErrNoTool) {
		t.Log(err)
		return
	}
	if err != nil {
		t.Errorf("asking consumer-groups: %v", err)
		return
	}
	var committed int64
	for _, p := range ps {
		if committed += p.Committed; p.Topic != s.topic || p.Lag != 0 || p.Committed != p.End {
			t.Errorf("consumer-groups says of %s/%d: committed %d, end %d, lag %d", p.Topic, p.Partition, p.Committed, p.End, p.Lag)
		}
	}
	if len(ps) != int(s.partitions.Load()) {
		t.Errorf("consumer-groups lists %d partitions, want %d", len(ps), s.partitions.Load())
	}
	report(struct {
		Row        string `json:"row"`
		Partitions int    `json:"partitions"`
		Committed  int64  `json:"committed"`
	}{"consumer_groups_agrees", len(ps), committed})
}

// TestWitness is the proof that the audit finds our commits in the coordinator's log, and one that goes back.
func TestWitness(t *testing.T) {
	s := &kafkaSystem{topic: "load", group: "workers"}
	record := func(group string, partition int32, offset int64) *kgo.Record {
		key := kmsg.OffsetCommitKey{Version: 1, Group: group, Topic: "load", Partition: partition}
		value := kmsg.OffsetCommitValue{Version: 3, Offset: offset, LeaderEpoch: -1, Metadata: "finished above"}
		return &kgo.Record{Key: key.AppendTo(nil), Value: value.AppendTo(nil)}
	}
	var commits []commit
	for _, r := range []*kgo.Record{
		record("workers", 0, 5), record("others", 0, 3), record("workers", 1, 2), record("workers", 0, 5), record("workers", 0, 4),
		{Key: []byte{0, 2, 0, 1, 'w'}, Value: []byte("metadata of a group")}, {Key: record("workers", 0, 0).Key},
	} {
		if c, ok := s.ours(r); ok {
			commits = append(commits, c)
		}
	}
	if want := []commit{{0, 5}, {1, 2}, {0, 5}, {0, 4}}; !slices.Equal(commits, want) {
		t.Fatalf("found %v, want %v", commits, want)
	}
	if found := rewinds(commits); len(found) != 1 {
		t.Errorf("found %q, want the last commit", found)
	}
	// Java's hash codes of these names are 96354, -421004483, and the least int.
	for group, want := range map[string]int32{"abc": 96354 % 5, "consumers": 421004483 % 5, "polygenelubricants": 0} {
		if got := coordinatedIn(group, 5); got != want {
			t.Errorf("group %s is in partition %d, want %d", group, got, want)
		}
	}
}
