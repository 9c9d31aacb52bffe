package consumer

import "sync"

// partitionLanes has the lanes of each partition that is at large here.
type partitionLanes struct {
	cfg    Lane
	spares laneSpares

	mu sync.Mutex
	by map[partitionKey]*lanesInUse
}

// partitionKey names what has lanes of its own.
type partitionKey struct {
	feed      *feed
	topic     string
	partition int32
}

// lanesInUse are those of a partition, and how many claims that have not ended use them.
type lanesInUse struct {
	*lanes
	claims int
}

func newPartitionLanes(cfg Lane) *partitionLanes {
	return &partitionLanes{cfg: cfg, spares: newLaneSpares(), by: make(map[partitionKey]*lanesInUse)}
}

// use finds or makes the lanes of a claim that begins.
func (ps *partitionLanes) use(key partitionKey) *lanes {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.sweep()
	t := ps.by[key]
	if t == nil {
		t = &lanesInUse{lanes: newLanes(ps.cfg, ps.spares)}
		ps.by[key] = t
	}
	t.claims++
	return t.lanes
}

// leave says that a claim which used those of key has ended.
func (ps *partitionLanes) leave(key partitionKey) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.by[key].claims--
	ps.sweep()
}

// sweep forgets those of partitions that went elsewhere; the last ones, where something runs still, when the next claim begins or
// ends.
func (ps *partitionLanes) sweep() {
	for key, t := range ps.by {
		if t.claims > 0 {
			continue
		}
		if n, _, _ := t.size(); n == 0 {
			delete(ps.by, key)
		}
	}
}

// all are the lanes of all partitions; of nil, none.
func (ps *partitionLanes) all() []*lanes {
	if ps == nil {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	all := make([]*lanes, 0, len(ps.by))
	for _, t := range ps.by {
		all = append(all, t.lanes)
	}
	return all
}
