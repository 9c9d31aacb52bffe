package sim

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// A member that is cut off has to think its partitions lost when the group gives them to others, and not when its next request
// has failed: else two processes are at work on a partition, which the order promises not to happen.
func TestCutOffMembers(t *testing.T) {
	for seed := range uint64(8) {
		for _, cut := range []Step{
			{After: Span(1300 * time.Millisecond), Fault: Fault{What: CutTo, For: Span(5 * time.Second)}},
			{After: Span(1150 * time.Millisecond), Fault: Fault{What: CutBoth, For: Span(5001 * time.Millisecond)}},
		} {
			s := Schedule{World: "kafka", Seed: seed, Processes: 2, Handlers: map[Act]int{Slow: 70},
				Settings: Settings{
					Topics: 1, Partitions: 2, Keys: 4, Order: consumer.OrderPartition, Attempts: 3, Workers: 2, Budget: 16,
					Lease: Span(2 * time.Second), RevokeWait: Span(time.Second), Drain: Span(3 * time.Second),
				},
				Steps: []Step{{After: Span(time.Second), Produce: 20}, cut}}
			if r := Run(t, s, nil); len(r.Findings) > 0 {
				t.Errorf("seed %d: %s", seed, r.about(false))
			}
		}
	}
}

// Who closes without contact is told so while it waits, and not all at once at the end.
func TestDownWhileClosing(t *testing.T) {
	for _, k := range Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			s := Schedule{World: k.Name, Seed: 1, Processes: 1, Handlers: map[Act]int{Slow: 50},
				Settings: Settings{
					Topics: 1, Partitions: 1, Keys: 1, Attempts: 3, Workers: 4, Budget: 16,
					Lease: Span(4 * time.Second), RevokeWait: Span(time.Second), Drain: Span(time.Second),
				},
				Steps: []Step{
					{After: Span(time.Second), Produce: 20},
					{After: Span(50 * time.Millisecond), Fault: Fault{What: Down, For: Span(20 * time.Second)}},
					{After: Span(time.Millisecond), Fault: Fault{What: Stop}},
				}}
			if r := Run(t, s, nil); len(r.Findings) > 0 {
				t.Errorf("%s", r.about(true))
			}
		})
	}
}

// With a budget that one fetch uses up, the brokers are asked in turns: a broker that has nothing would else keep the budget with
// fetches that wait, one behind the other, and what another one has would never be read.
func TestEachBrokerIsRead(t *testing.T) {
	for seed := range uint64(16) {
		s := Schedule{World: "kafka", Seed: seed, Processes: 1,
			Settings: Settings{
				Topics: 1, Partitions: 4, Keys: 1, Attempts: 3, Workers: 2, Budget: 16,
				Lease: Span(2 * time.Second), RevokeWait: Span(time.Second), Drain: Span(time.Second),
			},
			Steps: []Step{{After: Span(time.Second), Produce: 8}}}
		if r := Run(t, s, nil); len(r.Findings) > 0 {
			t.Fatalf("seed %d: %s", seed, r.about(false))
		}
	}
}
