package kafkabroker

import (
	"cmp"
	"maps"
	"slices"
)

// A partitionID names a partition.
type partitionID struct {
	topic string
	no    int32
}

func comparePartitions(a, b partitionID) int {
	return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.no, b.no))
}

// A subscriber is a member of a group as its leader sees it.
type subscriber struct {
	id string
	// instance is the static name, or empty.
	instance string
	topics   []string
	// owned are the partitions that it says it has, and generation when it got them: of two who claim one, the later has it.
	owned      []partitionID
	generation int32
}

// A balancer decides who gets which partitions. It is a pure function: the same input gives the same plan, whoever leads.
// counts has the partitions of each topic that exists.
type balancer func(subs []subscriber, counts map[string]int32) map[string][]partitionID

// ordered sorts members as Java's assignors do: by static name where there is one, else by id.
func ordered(subs []subscriber) []subscriber {
	subs = slices.Clone(subs)
	slices.SortFunc(subs, func(a, b subscriber) int {
		return cmp.Or(cmp.Compare(cmp.Or(a.instance, a.id), cmp.Or(b.instance, b.id)), cmp.Compare(a.id, b.id))
	})
	return subs
}

// wanted lists the topics that anybody subscribes to, sorted.
func wanted(subs []subscriber) []string {
	set := make(map[string]bool)
	for _, s := range subs {
		for _, t := range s.topics {
			set[t] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// rangePlan is Kafka's range assignor: of each topic, the first member gets the first partitions, and so on.
func rangePlan(subs []subscriber, counts map[string]int32) map[string][]partitionID {
	plan := emptyPlan(subs)
	subs = ordered(subs)
	for _, topic := range wanted(subs) {
		var takers []string
		for _, s := range subs {
			if slices.Contains(s.topics, topic) {
				takers = append(takers, s.id)
			}
		}
		n, next := counts[topic], int32(0)
		for i, id := range takers {
			share := n / int32(len(takers))
			if int32(i) < n%int32(len(takers)) {
				share++
			}
			for range share {
				plan[id] = append(plan[id], partitionID{topic, next})
				next++
			}
		}
	}
	return plan
}

// roundRobinPlan is Kafka's round-robin assignor: all partitions of all topics in turn over the members who want them.
func roundRobinPlan(subs []subscriber, counts map[string]int32) map[string][]partitionID {
	plan := emptyPlan(subs)
	subs = ordered(subs)
	turn := 0
	for _, topic := range wanted(subs) {
		for no := range counts[topic] {
			for !slices.Contains(subs[turn%len(subs)].topics, topic) {
				turn++
			}
			id := subs[turn%len(subs)].id
			plan[id] = append(plan[id], partitionID{topic, no})
			turn++
		}
	}
	return plan
}

// stickyPlan spreads the partitions evenly and moves as few as it can.
func stickyPlan(subs []subscriber, counts map[string]int32) map[string][]partitionID {
	subs = ordered(subs)
	s := sticky{plan: emptyPlan(subs), wants: make(map[string]map[string]bool), subs: subs}
	for _, sub := range subs {
		s.wants[sub.id] = make(map[string]bool)
		for _, t := range sub.topics {
			s.wants[sub.id][t] = true
		}
	}
	s.keep(counts)
	s.place(counts)
	s.even()
	for _, ps := range s.plan {
		slices.SortFunc(ps, comparePartitions)
	}
	return s.plan
}

type sticky struct {
	subs  []subscriber
	wants map[string]map[string]bool // by member and topic
	plan  map[string][]partitionID
	owner map[partitionID]string
}

// keep leaves each partition with who has it. Of two who say so the one of the later generation has it.
func (s *sticky) keep(counts map[string]int32) {
	s.owner = make(map[partitionID]string)
	since := make(map[partitionID]int32)
	for _, sub := range s.subs {
		for _, p := range sub.owned {
			if p.no < 0 || p.no >= counts[p.topic] || !s.wants[sub.id][p.topic] {
				continue
			}
			if _, taken := s.owner[p]; taken && since[p] >= sub.generation {
				continue
			}
			s.owner[p], since[p] = sub.id, sub.generation
		}
	}
	for p, id := range s.owner {
		s.plan[id] = append(s.plan[id], p)
	}
	for _, ps := range s.plan {
		slices.SortFunc(ps, comparePartitions)
	}
}

// place gives what nobody has to who has least.
func (s *sticky) place(counts map[string]int32) {
	for _, topic := range wanted(s.subs) {
		for no := range counts[topic] {
			p := partitionID{topic, no}
			if _, has := s.owner[p]; has {
				continue
			}
			if id := s.least(topic); id != "" {
				s.plan[id], s.owner[p] = append(s.plan[id], p), id
			}
		}
	}
}

// least is the member with the fewest partitions of those who want a topic.
func (s *sticky) least(topic string) (id string) {
	for _, sub := range s.subs {
		if s.wants[sub.id][topic] && (id == "" || len(s.plan[sub.id]) < len(s.plan[id])) {
			id = sub.id
		}
	}
	return id
}

// even moves single partitions from who has at least two more than another who wants them, until there is none. Each move lowers
// the sum of squares, so it ends.
func (s *sticky) even() {
	for moved := true; moved; {
		moved = false
		byLoad := slices.Clone(s.subs)
		slices.SortStableFunc(byLoad, func(a, b subscriber) int { return cmp.Compare(len(s.plan[b.id]), len(s.plan[a.id])) })
		for _, from := range byLoad {
			if s.shed(from.id) {
				moved = true
				break
			}
		}
	}
}

// shed moves one partition away from a member; the last ones go first.
func (s *sticky) shed(from string) bool {
	ps := s.plan[from]
	for i := len(ps) - 1; i >= 0; i-- {
		to := s.least(ps[i].topic)
		if to == "" || len(s.plan[to])+1 >= len(ps) {
			continue
		}
		s.plan[to], s.owner[ps[i]] = append(s.plan[to], ps[i]), to
		s.plan[from] = slices.Delete(ps, i, i+1)
		return true
	}
	return false
}

// cooperative turns a plan into one step of KIP-429: a partition that moves is given to nobody until who has it has let it go and
// says so by joining again.
func cooperative(plan map[string][]partitionID, subs []subscriber) map[string][]partitionID {
	claimed := make(map[partitionID][]string)
	for _, s := range subs {
		for _, p := range s.owned {
			claimed[p] = append(claimed[p], s.id)
		}
	}
	step := emptyPlan(subs)
	for id, ps := range plan {
		for _, p := range ps {
			others := slices.ContainsFunc(claimed[p], func(by string) bool { return by != id })
			if !others {
				step[id] = append(step[id], p)
			}
		}
	}
	return step
}

func emptyPlan(subs []subscriber) map[string][]partitionID {
	plan := make(map[string][]partitionID, len(subs))
	for _, s := range subs {
		plan[s.id] = nil
	}
	return plan
}
