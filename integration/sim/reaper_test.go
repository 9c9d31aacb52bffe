package sim

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/integration/sim/memnet"
)

// A member whose SyncGroup waits may join again, or be expelled: the rebalance that this begins is over when all who are left
// have joined, and not at its timeout.
func TestReaperCountsJoins(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, b *rawMember){
		"joins again": func(_ *testing.T, b *rawMember) { b.join(1) },
		"is expelled": func(t *testing.T, b *rawMember) {
			if err := b.w.expel(mainGroup, b.id); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newKafkaWorld(t, Schedule{World: "kafka", Settings: Settings{
					Topics: 1, Partitions: 1, Lease: Span(2 * time.Second), RevokeWait: Span(time.Second),
				}})
				defer w.Close()
				ctx, cancel := context.WithCancel(t.Context())
				a, b := &rawMember{ctx: ctx, w: w, instance: "a"}, &rawMember{ctx: ctx, w: w, instance: "b"}
				defer func() { cancel(); a.asked.Wait(); b.asked.Wait() }()
				a.takes(t, a.join(0))
				joins := b.join(0)
				a.takes(t, a.join(1))
				b.takes(t, joins)
				b.sync() // a leads, and sends none

				begin(t, b)
				began := time.Now()
				a.takes(t, a.join(2))
				if took := time.Since(began); took >= w.rebalanceTimeout()/2 {
					t.Errorf("the rebalance took %v", took)
				}
			})
		})
	}
}

// A rawMember is a static member that does what it is told to, each thing on a connection of its own.
type rawMember struct {
	ctx          context.Context
	w            *kafkaWorld
	instance, id string
	generation   int32
	asked        sync.WaitGroup
}

// join begins to join, with what differs from the join before.
func (m *rawMember) join(metadata byte) <-chan *kmsg.JoinGroupResponse {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = mainGroup, m.id, &m.instance, "consumer"
	req.SessionTimeoutMillis = int32(time.Duration(m.w.schedule.Settings.Lease).Milliseconds())
	req.RebalanceTimeoutMillis = int32(m.w.rebalanceTimeout().Milliseconds())
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{metadata}}}
	answer := make(chan *kmsg.JoinGroupResponse, 1)
	m.ask(func(cl *kgo.Client) {
		resp, _ := req.RequestWith(m.ctx, cl)
		answer <- resp
	})
	return answer
}

// takes waits for the answer to a join.
func (m *rawMember) takes(t *testing.T, answer <-chan *kmsg.JoinGroupResponse) {
	t.Helper()
	resp := <-answer
	if resp == nil || resp.ErrorCode != 0 {
		t.Fatalf("%s joins: %+v", m.instance, resp)
	}
	m.id, m.generation = resp.MemberID, resp.Generation
}

// sync begins to wait for an assignment.
func (m *rawMember) sync() {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = mainGroup, m.id, &m.instance, m.generation
	m.ask(func(cl *kgo.Client) { _, _ = req.RequestWith(m.ctx, cl) })
}

// ask does something beside the test, and returns when it is under way.
func (m *rawMember) ask(do func(cl *kgo.Client)) {
	m.asked.Go(func() {
		cl, err := kgo.NewClient(kgo.SeedBrokers(m.w.addresses()...), kgo.Dialer(m.w.net.Host(memnet.HostConfig{}).Dial))
		if err != nil {
			m.w.Error(err)
			return
		}
		defer cl.Close()
		do(cl)
	})
	time.Sleep(10 * time.Millisecond)
}
