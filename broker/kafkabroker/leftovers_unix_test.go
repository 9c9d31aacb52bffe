//go:build unix

package kafkabroker

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// TestAbortWithoutLeaderReal: a transaction is aborted while the partition that its outputs went to has no leader. Kafka 4.3
// takes that for deleted, and leaves them open there. What is committed goes on meanwhile, and once the leader is back the
// outputs are written again, and are there once: the transaction that has them must not commit the first ones, too.
func TestAbortWithoutLeaderReal(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	k := kafkad.Start(t, kafkad.Config{Nodes: 3})
	for _, level := range []int16{2, 1} {
		t.Run(fmt.Sprint("version ", level), func(t *testing.T) {
			if err := k.SetFeature(t.Context(), transactionFeature, level); err != nil {
				t.Fatal(err)
			}
			testAbortWithoutLeader(t, k)
		})
	}
}

func testAbortWithoutLeader(t *testing.T, k *kafkad.Cluster) {
	ts := plainTestSystem(brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "transactional", lasting)
	ts.brokers, ts.group = k.Brokers(), kafkad.Unique("torn")
	ts.connect(t)
	ts.topics, ts.outputs = []string{ts.group}, ts.group+"-outputs"
	if err := k.CreateTopic(t.Context(), ts.group, 1, nil); err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(ts.admin)
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, ts.outputs); err != nil {
		t.Fatal(err)
	}
	awaitLeaders(t, ts.admin, ts.outputs, 1)
	leader := func() int {
		topics, err := admin.ListTopics(t.Context(), ts.outputs)
		if err != nil {
			return 0
		}
		return int(topics[ts.outputs].Partitions[0].Leader)
	}
	x := ts.transactor(t)
	var nobody memberID
	nobody.member, nobody.generation = "nobody", 3
	commit := func(offset int64, as memberID, values ...string) error {
		var outs []*broker.Outgoing
		for _, v := range values {
			outs = append(outs, &broker.Outgoing{Topic: ts.outputs, Value: []byte(v)})
		}
		cs := []*commitment{{partitionID: partitionID{ts.topics[0], 0}, offset: offset}}
		return x.commit(t.Context(), func() bool { return true }, map[memberID][]*commitment{as: cs}, outs)
	}
	if err := commit(5, nobody, "made"); !replaced(codeOf(err)) {
		t.Fatalf("%v, want that the group refuses the offsets, and the transaction is aborted", err)
	}
	node := leader() - 1 // ids begin at 1
	k.Kill(node)
	long(t, "the partition has no leader", func() bool { return leader() == -1 })
	long(t, "what has no outputs is committed", func() bool { return commit(5, memberID{generation: -1}) == nil })
	if err := k.Restart(node); err != nil {
		t.Fatal(err)
	}
	long(t, "the outputs are committed", func() bool { return commit(6, memberID{generation: -1}, "made") == nil })
	if n := len(ts.stored(t, ts.outputs)); n != 1 {
		t.Errorf("the output is stored %d times", n)
	}
}
