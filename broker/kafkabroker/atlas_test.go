package kafkabroker

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// TestAtlas: what one look after the other makes known of topics. Against a broker the looks cannot be told apart.
func TestAtlas(t *testing.T) {
	there := topic{leaders: []int32{1, 2}}
	missing := topic{err: kafka.UnknownTopicOrPartition}
	for name, tc := range map[string]struct {
		cfg    Config
		looks  []map[string]topic
		news   int // over all looks
		counts map[string]int32
		absent bool
		gone   bool
	}{
		"it is there": {cfg: Config{Topics: []string{"a"}},
			looks: []map[string]topic{{"a": there}}, counts: map[string]int32{"a": 2}},
		"not there": {cfg: Config{Topics: []string{"a"}}, looks: []map[string]topic{{"a": missing}}, news: 1, absent: true},
		"not there, twice": {cfg: Config{Topics: []string{"a"}},
			looks: []map[string]topic{{"a": missing}, {"a": missing}}, news: 1,
			counts: map[string]int32{"a": 0}, absent: true, gone: true},
		"missed by one look": {cfg: Config{Topics: []string{"a"}},
			looks: []map[string]topic{{"a": there}, {"a": missing}, {"a": there}}, news: 1,
			counts: map[string]int32{"a": 2}},
		"no pattern matches": {cfg: Config{Pattern: "^x"},
			looks: []map[string]topic{{"a": there}, {"a": there}}, news: 1, absent: true, gone: true},
		"by a broker that is behind": {cfg: Config{Topics: []string{"a"}},
			looks:  []map[string]topic{{"a": {id: topicID{1}, leaders: []int32{1, 2}}}, {"a": {id: topicID{1}, leaders: []int32{1}}}},
			counts: map[string]int32{"a": 2}},
		"a pattern's topic": {cfg: Config{Pattern: "^a"},
			looks: []map[string]topic{{"a": there, "b": there}}, counts: map[string]int32{"a": 2}},
		"a pattern's, and gone": {cfg: Config{Pattern: "^a"},
			looks: []map[string]topic{{"a": there}, {}, {}}, news: 1, absent: true, gone: true},
		"a pattern's, missed by one look": {cfg: Config{Pattern: "^a"},
			looks: []map[string]topic{{"a": there}, {}}, counts: map[string]int32{"a": 2}},
		"a pattern's, missed now and then": {cfg: Config{Pattern: "^a"},
			looks: []map[string]topic{{"a": there}, {}, {"a": there}, {}}, counts: map[string]int32{"a": 2}},
		"a pattern's, and made again": {cfg: Config{Pattern: "^a"},
			looks: []map[string]topic{{"a": there}, {}, {}, {"a": there}, {}}, news: 1, counts: map[string]int32{"a": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			a, news := newAtlas(&tc.cfg), 0
			var v survey
			for _, look := range tc.looks {
				v = a.learn(a.begin(), maps.Clone(look), true)
				news += len(v.news)
			}
			if news != tc.news || v.err != nil || !maps.Equal(v.counts, tc.counts) {
				t.Errorf("%d news, counts %v, %v; want %d and %v", news, v.counts, v.err, tc.news, tc.counts)
			}
			if err := a.absent(); (err != nil) != tc.absent || err != nil && !errors.Is(err, broker.ErrNoTopic) {
				t.Errorf("absent: %v, want that something is: %v", err, tc.absent)
			}
			if a.gone("a") != tc.gone {
				t.Errorf("gone is %v", !tc.gone)
			}
			if leader := a.of(partitionID{"a", 1}).leader; (leader == 2) != (tc.counts["a"] > 0) {
				t.Errorf("partition 1 is led by %d", leader)
			}
		})
	}
}

// TestGoneTakesTime: looks may follow each other at once, and go to one broker that has just started and knows no topic yet. So
// that two of them do not find a topic says that it was deleted where the second one comes later.
func TestGoneTakesTime(t *testing.T) {
	there, missing := topic{leaders: []int32{1}}, topic{err: kafka.UnknownTopicOrPartition}
	for _, cfg := range []Config{{Topics: []string{"a"}}, {Pattern: "^a"}} {
		synctest.Test(t, func(t *testing.T) {
			cfg := cfg.withDefaults()
			a := newAtlas(&cfg)
			look := func(is topic) survey {
				ts := map[string]topic{"a": is}
				if is.err != nil && cfg.Pattern != "" {
					ts = map[string]topic{}
				}
				return a.learn(a.begin(), ts, true)
			}
			look(there)
			for range 10 {
				v := look(missing)
				if n, told := v.counts["a"]; a.gone("a") || told && n == 0 {
					t.Fatal("it is gone")
				}
				time.Sleep(retryWait)
			}
			time.Sleep(unsure)
			if look(missing); !a.gone("a") {
				t.Error("it is not gone, and no look has found it for more than a second")
			}
		})
	}
}

// TestAtlasWhole: topics are looked at rarely where the last look found each, and who leads each of its partitions.
func TestAtlasWhole(t *testing.T) {
	there, missing := topic{leaders: []int32{1, 2}}, topic{err: kafka.UnknownTopicOrPartition}
	for name, tc := range map[string]struct {
		cfg  Config
		look map[string]topic
		want bool
	}{
		"all are there":          {Config{Topics: []string{"a", "b"}}, map[string]topic{"a": there, "b": there}, true},
		"one is missing":         {Config{Topics: []string{"a", "b"}}, map[string]topic{"a": there, "b": missing}, false},
		"nobody told of one":     {Config{Topics: []string{"a", "b"}}, map[string]topic{"a": there}, false},
		"a partition has nobody": {Config{Topics: []string{"a"}}, map[string]topic{"a": {leaders: []int32{1, -1}}}, false},
		"no partitions":          {Config{Topics: []string{"a"}}, map[string]topic{"a": {}}, false},
		"a pattern matches":      {Config{Pattern: "^a"}, map[string]topic{"a": there, "b": missing}, true},
		"a pattern does not":     {Config{Pattern: "^x"}, map[string]topic{"a": there}, false},
	} {
		a := newAtlas(&tc.cfg)
		if a.whole() {
			t.Errorf("%s: before a look", name)
		}
		a.learn(a.begin(), tc.look, true)
		if a.whole() != tc.want {
			t.Errorf("%s: whole is %v", name, !tc.want)
		}
	}
}

// TestSubscribed: a member tells the group of the topics that it names, whether they are there or not, or of those that match.
func TestSubscribed(t *testing.T) {
	ts := map[string]topic{"c": {}, "b": {}, "x": {}}
	for _, tc := range []struct {
		cfg  Config
		want []string
	}{
		{Config{Topics: []string{"b", "a"}}, []string{"b", "a"}},
		{Config{Pattern: "^[bc]$"}, []string{"b", "c"}},
	} {
		a := newAtlas(&tc.cfg)
		a.learn(a.begin(), maps.Clone(ts), true)
		if got := a.subscribed(); !slices.Equal(got, tc.want) {
			t.Errorf("%v, want %v", got, tc.want)
		}
	}
}

// TestAtlasLacks: a partition's log is gone with its topic, where its topic is another one, and, where the broker has no ids,
// where its topic has fewer partitions. What is unknown at the moment is not gone, nor is what one look has not heard of yet.
func TestAtlasLacks(t *testing.T) {
	id, other := topicID{1}, topicID{2}
	two := []int32{1, 1}
	missing := topic{err: kafka.UnknownTopicOrPartition}
	for name, tc := range map[string]struct {
		looks []topic
		no    int32
		id    topicID
		want  bool
	}{
		"it is there":          {[]topic{{id: id, leaders: two}}, 1, id, false},
		"missed once":          {[]topic{missing}, 1, id, false},
		"deleted":              {[]topic{missing, missing}, 1, id, true},
		"another":              {[]topic{{id: other, leaders: two}}, 1, id, true},
		"another, smaller":     {[]topic{{id: other, leaders: two}}, 2, id, true},
		"not heard of yet":     {[]topic{{id: id, leaders: two}}, 2, id, false},
		"no ids":               {[]topic{{leaders: two}}, 1, topicID{}, false},
		"no ids, smaller":      {[]topic{{leaders: two}}, 2, topicID{}, true},
		"an error of a moment": {[]topic{{err: kafka.LeaderNotAvailable}}, 2, id, false},
	} {
		a := newAtlas(&Config{Topics: []string{"a"}})
		for _, look := range tc.looks {
			a.learn(a.begin(), map[string]topic{"a": look}, true)
		}
		if got := a.lacks(partitionID{"a", tc.no}, tc.id); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestAtlasPartitions: what is shared between processes are the partitions of all topics, also of one that nobody can tell of for
// a moment: else all would have too large a share of the others.
func TestAtlasPartitions(t *testing.T) {
	three, two := topic{leaders: []int32{1, 1, 1}}, topic{leaders: []int32{1, -1}}
	unknown, missing := topic{err: kafka.LeaderNotAvailable}, topic{err: kafka.UnknownTopicOrPartition}
	a := newAtlas(&Config{Topics: []string{"a", "b"}})
	if n := a.partitions(); n != 0 {
		t.Errorf("%d partitions before the first look", n)
	}
	for i, step := range []struct {
		look map[string]topic
		want int
	}{
		{map[string]topic{"a": three, "b": missing}, 3},
		{map[string]topic{"a": three, "b": two}, 5},
		{map[string]topic{"a": unknown, "b": two}, 5},
		{map[string]topic{"a": three, "b": missing}, 5},
		{map[string]topic{"a": three, "b": missing}, 3}, // deleted
		{map[string]topic{"a": two, "b": two}, 4},
	} {
		a.learn(a.begin(), step.look, true)
		if n := a.partitions(); n != step.want {
			t.Errorf("after look %d: %d partitions, want %d", i+1, n, step.want)
		}
	}
	a = newAtlas(&Config{Pattern: ".*"})
	for i, step := range []struct {
		look map[string]topic
		want int
	}{
		{map[string]topic{"a": three, "b": two}, 5},
		{map[string]topic{"b": two}, 5}, // by a broker that has just started
		{map[string]topic{"a": three, "b": two}, 5},
		{map[string]topic{"b": two}, 5},
		{map[string]topic{"b": two}, 2},
	} {
		a.learn(a.begin(), step.look, true)
		if n := a.partitions(); n != step.want {
			t.Errorf("of a pattern, after look %d: %d partitions, want %d", i+1, n, step.want)
		}
	}
}
