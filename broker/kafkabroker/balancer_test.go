package kafkabroker

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawGroup(t *rapid.T) ([]subscriber, map[string]int32) {
	counts := make(map[string]int32)
	var topics []string
	for i := range rapid.IntRange(1, 4).Draw(t, "topics") {
		topics = append(topics, fmt.Sprintf("t%d", i))
		counts[topics[i]] = rapid.Int32Range(0, 12).Draw(t, "partitions")
	}
	same := rapid.Bool().Draw(t, "all want all")
	var subs []subscriber
	for i := range rapid.IntRange(1, 6).Draw(t, "members") {
		s := subscriber{id: fmt.Sprintf("m%d", i), topics: topics}
		if !same {
			s.topics = rapid.SliceOfDistinct(rapid.SampledFrom(topics), rapid.ID).Draw(t, "wants")
		}
		subs = append(subs, s)
	}
	return subs, counts
}

// complete fails unless each partition that somebody wants has one owner, who wants it.
func complete(t *rapid.T, plan map[string][]partitionID, subs []subscriber, counts map[string]int32) {
	owner := make(map[partitionID]string)
	for _, s := range subs {
		ps, ok := plan[s.id]
		if !ok {
			t.Fatalf("%s is not in the plan", s.id)
		}
		for _, p := range ps {
			if owner[p] != "" || !slices.Contains(s.topics, p.topic) || p.no >= counts[p.topic] {
				t.Fatalf("%v is given to %s, and to %q", p, s.id, owner[p])
			}
			owner[p] = s.id
		}
	}
	for _, topic := range wanted(subs) {
		for no := range counts[topic] {
			if owner[partitionID{topic, no}] == "" {
				t.Fatalf("%s/%d is given to nobody", topic, no)
			}
		}
	}
}

// balanced fails when a partition could move from a member to one who has at least two fewer.
func balanced(t *rapid.T, plan map[string][]partitionID, subs []subscriber) {
	for _, a := range subs {
		for _, p := range plan[a.id] {
			for _, b := range subs {
				if slices.Contains(b.topics, p.topic) && len(plan[b.id])+1 < len(plan[a.id]) {
					t.Fatalf("%s has %d, %s has %d and wants %v", a.id, len(plan[a.id]), b.id, len(plan[b.id]), p)
				}
			}
		}
	}
}

func TestPlansComplete(t *testing.T) {
	for name, plan := range map[string]balancer{"range": rangePlan, "roundrobin": roundRobinPlan, "sticky": stickyPlan} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				subs, counts := drawGroup(t)
				got := plan(subs, counts)
				complete(t, got, subs, counts)
				slices.Reverse(subs)
				if again := plan(subs, counts); !reflect.DeepEqual(got, again) {
					t.Fatalf("the plan depends on the order of members: %v, %v", got, again)
				}
			})
		})
	}
}

// TestRangePlan has the example of Kafka's documentation.
func TestRangePlan(t *testing.T) {
	subs := []subscriber{{id: "c1", topics: []string{"t0", "t1"}}, {id: "c0", topics: []string{"t0", "t1"}}}
	got := rangePlan(subs, map[string]int32{"t0": 3, "t1": 3})
	want := map[string][]partitionID{"c0": {{"t0", 0}, {"t0", 1}, {"t1", 0}, {"t1", 1}}, "c1": {{"t0", 2}, {"t1", 2}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := roundRobinPlan(subs, map[string]int32{"t0": 3, "t1": 3}); len(got["c0"]) != 3 ||
		got["c0"][1] != (partitionID{"t0", 2}) {
		t.Errorf("round robin gives %v", got)
	}
}

// TestSticky proves over joins, leaves and new partitions that the plan is complete and even, that a plan which is followed is
// not changed, and that no more move than must: where all want all, only what the newcomers need comes from those who stay.
func TestSticky(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		subs, counts := drawGroup(t)
		plan := stickyPlan(subs, counts)
		for step := range rapid.IntRange(1, 6).Draw(t, "steps") {
			for i := range subs {
				subs[i].owned, subs[i].generation = plan[subs[i].id], int32(step+1)
			}
			if again := stickyPlan(subs, counts); !reflect.DeepEqual(plan, again) {
				t.Fatalf("without a change %v became %v", plan, again)
			}
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				subs = append(subs, subscriber{id: fmt.Sprintf("n%d", step), topics: subs[0].topics, generation: -1})
			case 1:
				if len(subs) > 1 {
					i := rapid.IntRange(0, len(subs)-1).Draw(t, "leaves")
					subs = slices.Delete(slices.Clone(subs), i, i+1)
				}
			case 2:
				counts["t0"]++
			}
			plan = stickyPlan(subs, counts)
			complete(t, plan, subs, counts)
			balanced(t, plan, subs)
			few(t, plan, subs, counts)
		}
	})
}

func few(t *rapid.T, plan map[string][]partitionID, subs []subscriber, counts map[string]int32) {
	total := 0
	for _, topic := range wanted(subs) {
		total += int(counts[topic])
	}
	for _, s := range subs {
		if len(s.topics) != len(subs[0].topics) || len(wanted(subs)) != len(s.topics) {
			return // who wants less than all may have to move things around
		}
	}
	for _, s := range subs {
		kept := 0
		for _, p := range s.owned {
			if slices.Contains(plan[s.id], p) {
				kept++
			}
		}
		if kept < min(len(s.owned), total/len(subs)) {
			t.Fatalf("%s had %v and has %v: it kept fewer than its share of %d", s.id, s.owned, plan[s.id], total/len(subs))
		}
	}
}

// TestCooperative proves that step by step nobody gets what another has, and that a few steps reach a plan
// that is followed.
func TestCooperative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		subs, counts := drawGroup(t)
		for i := range subs[:len(subs)/2+1] { // some have something already
			subs[i].owned = stickyPlan(subs[:len(subs)/2+1], counts)[subs[i].id]
		}
		step := cooperative(stickyPlan(subs, counts), subs)
		for _, s := range subs {
			for _, p := range step[s.id] {
				for _, other := range subs {
					if other.id != s.id && slices.Contains(other.owned, p) {
						t.Fatalf("%v is given to %s while %s has it", p, s.id, other.id)
					}
				}
			}
		}
		for range 5 {
			for i := range subs {
				subs[i].owned = step[subs[i].id]
			}
			step = cooperative(stickyPlan(subs, counts), subs)
		}
		complete(t, step, subs, counts)
		balanced(t, step, subs)
	})
}

// TestStickyZombie: two say that they have a partition; the one who got it later has it.
func TestStickyZombie(t *testing.T) {
	p := partitionID{"t", 0}
	subs := []subscriber{{id: "a", topics: []string{"t"}, owned: []partitionID{p}, generation: 3},
		{id: "b", topics: []string{"t"}, owned: []partitionID{p}, generation: 5}}
	if got := stickyPlan(subs, map[string]int32{"t": 1}); len(got["b"]) != 1 {
		t.Errorf("got %v, want it with b", got)
	}
}
