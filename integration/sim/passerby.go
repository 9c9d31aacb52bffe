package sim

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/integration/sim/memnet"
)

// miscounts says whether kfake would count wrongly with this request, because a SyncGroup of its member waits, and with which
// JoinGroup a passer-by gets into the group; nil: it would not.
func (r *reaper) miscounts(c *kfake.Cluster, req kmsg.Request) *kmsg.JoinGroupRequest {
	group, about, joins := regroups(req)
	if group == "" {
		return nil
	}
	info := c.GroupInfo(group)
	if info == nil || info.State != "CompletingRebalance" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(info.Members, func(m kfake.GroupMember) bool {
		if r.syncs[m.MemberID] != info.Epoch || !slices.ContainsFunc(about, func(a memberName) bool { return a.is(m) }) {
			return false
		}
		// Who joins with the same again is answered with the generation that there is.
		return joins == nil || about[0].id == "" || !reflect.DeepEqual(joins, r.joins[m.MemberID])
	}) {
		return nil
	}
	r.passers++
	by := kmsg.NewPtrJoinGroupRequest()
	by.Group, by.Protocols = group, r.lasts[group]
	by.InstanceID = kmsg.StringPtr(fmt.Sprintf("passer-by %d", r.passers))
	return by
}

// A memberName is what a request calls a member.
type memberName struct {
	id       string
	instance *string
}

func (n memberName) is(m kfake.GroupMember) bool {
	return n.id == m.MemberID || n.instance != nil && m.InstanceID != nil && *n.instance == *m.InstanceID
}

// regroups says who joins which group, with what, or leaves it; "": the request does neither.
func regroups(req kmsg.Request) (group string, about []memberName, joins []kmsg.JoinGroupRequestProtocol) {
	switch req := req.(type) {
	case *kmsg.JoinGroupRequest:
		return req.Group, []memberName{{req.MemberID, req.InstanceID}}, req.Protocols
	case *kmsg.LeaveGroupRequest:
		about = append(about, memberName{id: req.MemberID})
		for _, m := range req.Members {
			about = append(about, memberName{m.MemberID, m.InstanceID})
		}
		return req.Group, about, nil
	}
	return "", nil, nil
}

// passBy joins a group, which begins a rebalance, and leaves it. A static member needs no id for that.
func (r *reaper) passBy(join *kmsg.JoinGroupRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.w.addresses()...), kgo.Dialer(r.w.net.Host(memnet.HostConfig{}).Dial))
	if err != nil {
		r.w.Errorf("a client for a passer-by: %v", err)
		return
	}
	defer cl.Close()
	join.ProtocolType = "consumer"
	join.SessionTimeoutMillis = int32(time.Duration(r.w.schedule.Settings.Lease).Milliseconds())
	join.RebalanceTimeoutMillis = int32(r.w.rebalanceTimeout().Milliseconds())
	var joins sync.WaitGroup
	joins.Go(func() { _, _ = join.RequestWith(ctx, cl) }) // its answer would come when all have joined
	for ctx.Err() == nil && !leaves(ctx, cl, join) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	joins.Wait()
}

// leaves says whether a static member has left. It may not have joined yet.
func leaves(ctx context.Context, cl *kgo.Client, joined *kmsg.JoinGroupRequest) bool {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.Members = joined.Group, []kmsg.LeaveGroupRequestMember{{InstanceID: joined.InstanceID}}
	resp, err := req.RequestWith(ctx, cl)
	return err == nil && len(resp.Members) == 1 && kerr.ErrorForCode(resp.Members[0].ErrorCode) == nil
}
