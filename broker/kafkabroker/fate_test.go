package kafkabroker

import (
	"errors"
	"testing"

	kafka "github.com/segmentio/kafka-go"
)

// What became of a transaction whose end got no answer, by what is committed and by how topics are.
func TestFateOf(t *testing.T) {
	t.Parallel()
	one, other := topicID{1}, topicID{2}
	in, second := partitionID{"in", 0}, partitionID{"second", 0}
	w := &commitment{partitionID: in, topic: one, offset: 5, metadata: "m"}
	w2 := &commitment{partitionID: second, topic: one, offset: 7}
	ours, before := position{offset: 5, metadata: "m"}, position{offset: 3}
	unknown := topic{err: kafka.UnknownTopicOrPartition}
	here, anew := map[string]topic{"in": {id: one}}, map[string]topic{"in": {id: other}}
	both := map[string]topic{"in": {id: other}, "second": {id: one}}
	idle, mine := map[partitionID]position{in: before}, map[partitionID]position{in: ours}
	alone, two := []*commitment{w}, []*commitment{w, w2}
	nameless := []*commitment{{partitionID: in, offset: 5}}
	for name, c := range map[string]struct {
		witnesses []*commitment
		at        map[partitionID]position
		topics    map[string]topic
		gone      bool
		want      txnFate
		unsure    bool
	}{
		"no outputs":                      {nil, nil, nil, false, fateAborted, false},
		"the position is ours":            {alone, mine, nil, false, fateCommitted, false},
		"it is the one before":            {alone, idle, here, false, fateAborted, false},
		"the first commit was not made":   {alone, nil, here, false, fateAborted, false},
		"made again":                      {alone, nil, anew, true, fateUntold, false},
		"made again, and committed since": {alone, idle, anew, true, fateUntold, false},
		"made again, says one of two":     {alone, idle, anew, false, fateAborted, true},
		"deleted":                         {alone, nil, map[string]topic{"in": unknown}, true, fateUntold, false},
		"not known at the moment":         {alone, nil, map[string]topic{"in": unknown}, false, fateAborted, true},
		"another one tells that it was":   {two, map[partitionID]position{second: w2.position()}, both, true, fateCommitted, false},
		"another one tells that not":      {two, nil, both, false, fateAborted, false},
		"brokers without ids":             {nameless, nil, map[string]topic{"in": {}}, false, fateAborted, false},
	} {
		got, err := fateOf(c.witnesses, c.at, c.topics, func(partitionID, topicID) bool { return c.gone })
		if got != c.want || errors.Is(err, errTopicUnsure) != c.unsure || err != nil && !c.unsure {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}
