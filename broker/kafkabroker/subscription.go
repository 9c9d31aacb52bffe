package kafkabroker

// A scheme is how a group shares its partitions out.
type scheme struct {
	name        string
	plan        balancer
	cooperative bool
}

// schemes have the names under which other clients know them, so that groups may be mixed.
var schemes = map[string]scheme{
	"sticky":     {name: "cooperative-sticky", plan: stickyPlan, cooperative: true},
	"range":      {name: "range", plan: rangePlan},
	"roundrobin": {name: "roundrobin", plan: roundRobinPlan},
}

// subscription writes what a member tells the leader: version 2, with owned partitions (KIP-429) and their generation (KIP-792).
func subscription(topics []string, owned []partitionID, generation int32) []byte {
	w := writer{}
	w.i16(2)
	w.array(len(topics))
	for _, t := range topics {
		w.str(t)
	}
	w.array(-1)
	w.partitions(owned, w.number)
	w.i32(generation)
	return w.b
}

// read takes what it can: other clients write older versions, and some of them not to the end.
func (s *subscriber) read(b []byte) {
	r := reader{b: b}
	version := r.i16()
	for n := r.array(); n > 0 && !r.bad; n-- {
		s.topics = append(s.topics, r.str())
	}
	r.bytes()
	s.generation = -1
	if version < 1 || r.bad || len(r.b) == 0 {
		return
	}
	s.owned = readPartitions(&r)
	if r.bad {
		s.owned = nil
		return
	}
	if version >= 2 {
		if s.generation = r.i32(); r.bad {
			s.generation = -1
		}
	}
}

func assignment(ps []partitionID) []byte {
	w := writer{}
	w.i16(1)
	w.partitions(ps, w.number)
	w.array(-1)
	return w.b
}

// readAssignment takes an empty one for none: a member whom the leader forgot.
func readAssignment(b []byte) ([]partitionID, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := reader{b: b}
	r.i16()
	ps := readPartitions(&r)
	return ps, r.err()
}

func readPartitions(r *reader) (ps []partitionID) {
	for n := r.array(); n > 0 && !r.bad; n-- {
		name := r.str()
		for m := r.array(); m > 0 && !r.bad; m-- {
			ps = append(ps, partitionID{name, r.partition()})
		}
	}
	return ps
}
