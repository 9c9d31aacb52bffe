package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A reaper keeps the sessions and joins of members where kfake counts them otherwise than Kafka does:
//
//   - a member whose connection breaks while it waits for the answer to a JoinGroup or SyncGroup lives for ever: a rebalance
//     waits for it, or its partitions are read by nobody. Kafka counts its session from that answer on. The reaper expels it.
//   - the session of a member that waits for the answer to its SyncGroup may end meanwhile: kfake then leaves it without an
//     answer, and counts it as one that does not wait for the next JoinGroup, so that no rebalance ever ends by itself any
//     more. Kafka ends no session of who waits. The reaper sends heartbeats for it, the first one before kfake sees the
//     SyncGroup: the session may be all but over then, for kfake does not count it anew from the answer to a JoinGroup that
//     changes nothing, nor from a restart.
//   - kfake takes any request that waits for a JoinGroup. The sequence: the leader has not sent its SyncGroup yet (it is frozen);
//     that of another member waits; this one loses its connection and joins again, and is not counted, for it waits already. Or
//     it leaves, or is expelled, and is taken off, though it was never counted. The rebalance lacks one from then on: all members
//     wait in it, and only its timeout would end it. But kfake begins that anew with each JoinGroup, and members that give one up
//     and send it again, in no step with each other, keep it going for ever. Kafka counts who waits for a join apart from who
//     waits for a sync, answers the latter with REBALANCE_IN_PROGRESS when a rebalance begins, and ends a join when the timeout
//     that began with it is over, with those that are there. The reaper lets a passer-by begin the rebalance first: then kfake
//     answers what waits before it counts.
//   - a static member that has left, where the brokers assign partitions, and does not come back keeps its partitions for ever.
//     Kafka counts its session on. The reaper expels it.
//   - where the brokers assign the partitions, kfake takes a late commit, by a member that has joined again meanwhile, of a
//     partition that is another one's by now. Kafka refuses what is not assigned to who commits it (KIP-1251), and so does the
//     reaper.
type reaper struct {
	w     *kafkaWorld
	over  chan struct{}
	ended chan struct{}

	mu    sync.Mutex
	heard map[string]time.Time                       // of each member
	syncs map[string]int32                           // of each member the generation of its last SyncGroup
	calm  map[string]calm                            // of each group
	joins map[string][]kmsg.JoinGroupRequestProtocol // of each member the last ones
	lasts map[string][]kmsg.JoinGroupRequestProtocol // of each group: a static member's first has no id
	// passers is how many passers-by there were.
	passers int
}

// calm is since when a group is as it is.
type calm struct {
	state string
	epoch int32
	since time.Time
}

// reap starts one.
func (w *kafkaWorld) reap() *reaper {
	r := &reaper{
		w: w, over: make(chan struct{}), ended: make(chan struct{}),
		heard: map[string]time.Time{}, syncs: map[string]int32{}, calm: map[string]calm{},
		joins: map[string][]kmsg.JoinGroupRequestProtocol{}, lasts: map[string][]kmsg.JoinGroupRequestProtocol{},
	}
	r.watch(w.cluster)
	go r.loop()
	return r
}

// watch sees all requests to a cluster.
func (r *reaper) watch(c *kfake.Cluster) {
	c.Control(func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:staticcheck // kfake's signature
		if s, ok := req.(*kmsg.SyncGroupRequest); ok {
			c.SleepControl(func() { r.beat(s.Group, s.MemberID, s.Generation) })
		}
		if join := r.miscounts(c, req); join != nil {
			c.SleepControl(func() { r.passBy(join) })
		}
		r.note(req)
		commit, ok := req.(*kmsg.OffsetCommitRequest)
		if ok && r.w.schedule.Settings.Assigned && isStray(c.GroupInfo(commit.Group), commit) {
			c.KeepControl()
			return stale(commit), nil, true
		}
		return nil, nil, false
	})
}

// isStray says whether a commit is of a partition that another member of the group has.
func isStray(info *kfake.GroupInfo, commit *kmsg.OffsetCommitRequest) bool {
	if info == nil {
		return false
	}
	for _, m := range info.Members {
		for _, t := range commit.Topics {
			for _, p := range t.Partitions {
				if m.MemberID != commit.MemberID && slices.Contains(m.Assignment[t.Topic], p.Partition) {
					return true
				}
			}
		}
	}
	return false
}

// stale refuses a commit.
func stale(commit *kmsg.OffsetCommitRequest) kmsg.Response {
	resp := commit.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range commit.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, kerr.StaleMemberEpoch.Code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// note writes down who was heard.
func (r *reaper) note(req kmsg.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	member := ""
	switch req := req.(type) {
	case *kmsg.HeartbeatRequest:
		member = req.MemberID
	case *kmsg.JoinGroupRequest:
		member = req.MemberID
		r.joins[member], r.lasts[req.Group] = req.Protocols, req.Protocols
	case *kmsg.SyncGroupRequest:
		member = req.MemberID
		r.syncs[member] = req.Generation
	case *kmsg.OffsetCommitRequest:
		member = req.MemberID
	case *kmsg.ConsumerGroupHeartbeatRequest:
		member = req.MemberID
	}
	if member != "" {
		r.heard[member] = time.Now()
	}
}

func (r *reaper) loop() {
	defer close(r.ended)
	every := time.Duration(r.w.schedule.Settings.Lease) / 4
	for t := time.NewTicker(every); ; {
		select {
		case <-t.C:
			r.round()
		case <-r.over:
			t.Stop()
			return
		}
	}
}

func (r *reaper) round() {
	for _, group := range r.w.groupNames() {
		info := r.w.brokers().GroupInfo(group)
		if info == nil {
			continue
		}
		gone, waiting := r.sort(group, info)
		for _, member := range gone {
			_ = r.w.expel(group, member) // or at the next round
		}
		for member, generation := range waiting {
			r.beat(group, member, generation)
		}
	}
}

// beat sends a heartbeat for a member.
func (r *reaper) beat(group, member string, generation int32) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	_, _ = req.RequestWith(ctx, r.w.client)
}

// sort finds who was silent for a session and half of one since the group is as it is, and who waits for the answer to its
// SyncGroup.
func (r *reaper) sort(group string, info *kfake.GroupInfo) (gone []string, waiting map[string]int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, session := time.Now(), time.Duration(r.w.schedule.Settings.Lease)
	is := r.calm[group]
	if is.state != info.State || is.epoch != info.Epoch {
		is = calm{info.State, info.Epoch, now}
		r.calm[group] = is
	}
	waiting = map[string]int32{}
	for _, m := range info.Members {
		limit := session * 3 / 2
		if info.State == "PreparingRebalance" { // it may wait for the answer to its JoinGroup
			limit += r.w.rebalanceTimeout() + kafkaRequest
		}
		switch {
		case info.State == "CompletingRebalance" && r.syncs[m.MemberID] == info.Epoch:
			waiting[m.MemberID] = info.Epoch
		case min(now.Sub(r.heard[m.MemberID]), now.Sub(is.since)) > limit:
			gone = append(gone, m.MemberID)
		}
	}
	return gone, waiting
}

// end stops it.
func (r *reaper) end() {
	close(r.over)
	<-r.ended
}
