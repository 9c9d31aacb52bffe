package membroker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

const testLease = 200 * time.Millisecond

// harness runs the conformance suite on a broker of this configuration.
func harness(c Config) brokertest.Harness {
	c.Lease = testLease
	h := brokertest.Harness{
		New:              func(t testing.TB, s brokertest.Setup) *brokertest.System { return newSystem(c, s) },
		Traits:           c.withDefaults().traits(),
		Lease:            testLease,
		RevokeWait:       2 * testLease,
		Bubble:           true,
		KeepsRuns:        true,
		Operations:       true,
		NoPartitions:     c.Leased,
		LateAcks:         c.Leased,
		StopHandsOver:    c.Leased,
		DropsRepeatedIDs: true,
		Goroutines:       []string{"broker/membroker."},
		Cannot:           map[string]string{"Undecodable": "there is nothing that a memory broker cannot decode"},
	}
	if c.Leased {
		for _, name := range []string{"Revoke", "Steal", "Bounce"} {
			h.Cannot[name] = "a leased stream has one claim, which nobody takes away"
		}
	} else {
		h.Cannot["ForgetSettles"] = "a partitioned broker forgets no commit"
	}
	return h
}

func newSystem(c Config, s brokertest.Setup) *brokertest.System {
	if s.Lease != 0 {
		c.Lease = s.Lease
	}
	c.Topics = make(map[string]int)
	sys := &brokertest.System{MaxMessageBytes: 2 << 20}
	c.MaxMessageBytes = sys.MaxMessageBytes
	for i := range s.Topics {
		name := fmt.Sprintf("topic%d", i)
		c.Topics[name] = s.Partitions
		sys.Topics = append(sys.Topics, name)
	}
	b := New(c)
	b.Source(SourceConfig{Group: "group", Topics: sys.Topics}) // progress counts from here
	sys.Join = func(testing.TB) *brokertest.Process { return newProcess(b, sys.Topics) }
	sys.Misconfigured = func(testing.TB) broker.Source {
		b.Fail(OpOpen, 1, errors.New("told to refuse"))
		return b.Source(SourceConfig{Group: "group", Topics: sys.Topics})
	}
	sys.Produce = func(t testing.TB, partition int, ms ...broker.Outgoing) {
		t.Helper()
		if err := b.ProduceTo(partition, ms...); err != nil {
			t.Fatal(err)
		}
	}
	sys.Unsettled = func(testing.TB) int64 { return b.Unsettled("group") }
	if c.Atomic {
		sys.Outputs, sys.Stored = "outputs", func(_ testing.TB, topic string) []broker.Message { return b.Messages(topic) }
	}
	sys.Publisher = func(testing.TB) broker.Publisher { return b.Publisher() }
	faultsOf(b, sys, s)
	return sys
}

func newProcess(b *Broker, topics []string) *brokertest.Process {
	src := b.Source(SourceConfig{Group: "group", Topics: topics, Prefetch: 32, RevokeWait: 2 * testLease})
	return &brokertest.Process{
		Source: src,
		Kill:   src.Kill,
		Freeze: src.Freeze,
		Thaw:   src.Thaw,
		Cut: func(d brokertest.Direction) {
			src.Cut(map[brokertest.Direction]Direction{brokertest.ToBroker: ToBroker, brokertest.FromBroker: FromBroker,
				brokertest.Both: Both}[d])
		},
		Heal:       src.Heal,
		EndReceive: func() { b.Fail(OpReceive, 1, errors.New("told to fail for good")) },
	}
}

func faultsOf(b *Broker, sys *brokertest.System, s brokertest.Setup) {
	must := func(t testing.TB, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	sys.Down = func(testing.TB) { b.Down() }
	sys.Up = func(testing.TB) { b.Up() }
	sys.Redeliver = func(t testing.TB, m *broker.Message) {
		t.Helper()
		must(t, b.Redeliver("group", m.Topic, m.Partition, m.Offset))
	}
	sys.FailSettles = func(_ testing.TB, n int) { b.Fail(OpSettle, n, fmt.Errorf("told to fail")) }
	sys.SlowSettles = func(_ testing.TB, d time.Duration) { b.Delay(d) }
	sys.Trim = func(t testing.TB, topic string, n int) {
		t.Helper()
		must(t, b.Trim(topic, 0, b.topics[topic].log(0).first+int64(n)))
	}
	sys.Recreate = func(t testing.TB, topic string) {
		t.Helper()
		must(t, b.Recreate(topic))
	}
	sys.Pulls = func(testing.TB) int64 { return b.Stats("group").Pulls }
	sys.Heartbeats = func(testing.TB) int64 { return b.Stats("group").Heartbeats }
	sys.Floors = func(testing.TB) map[string][]int64 {
		floors := make(map[string][]int64)
		for _, name := range sys.Topics {
			for p := range s.Partitions {
				floors[fmt.Sprintf("%s/%d", name, p)] = b.History("group", name, int32(p))
			}
		}
		return floors
	}
	if b.stream != nil {
		sys.ForgetSettles = func(testing.TB) { b.ForgetSettles("group", time.Second) }
		return
	}
	move := func(f func(group, topic string, partition int32) error) func(testing.TB, *broker.Claim) {
		return func(t testing.TB, c *broker.Claim) {
			_ = f("group", c.Topic, c.Partition) // it may be nobody's at the moment
		}
	}
	sys.Revoke, sys.Steal, sys.Bounce = move(b.Revoke), move(b.Steal), move(b.Bounce)
}

func TestConformance(t *testing.T) {
	for name, c := range map[string]Config{
		"partitioned":  {},
		"atomic":       {Atomic: true},
		"leased":       {Leased: true},
		"exact":        {Leased: true, Attempts: broker.Exact},
		"at most once": {Leased: true, AtMostOnce: true},
		"short delay":  {Leased: true, NativeDelay: testLease},
	} {
		t.Run(name, func(t *testing.T) { brokertest.Run(t, harness(c)) })
	}
}

// TestStorms runs the suite's random case with many seeds.
func TestStorms(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 5
	}
	for _, c := range []Config{{}, {Leased: true}} {
		for seed := range seeds {
			h := harness(c)
			h.Seed = seed + 2
			if failed := brokertest.Failures(t, h, "Storm"); len(failed) > 0 {
				t.Errorf("leased %v, seed %d: %v", c.Leased, h.Seed, failed)
			}
		}
	}
}
