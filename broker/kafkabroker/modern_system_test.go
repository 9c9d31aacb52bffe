package kafkabroker

import (
	"cmp"
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// Who has a partition is the broker's to say in the consumer protocol. A test that wants one to move lets its owner subscribe to
// the topic no more.
type away int

const (
	goneUntilReleased away = iota + 1 // and then it comes back
	goneUntilAlone                    // until somebody else goes, or nobody else is there
)

func (ts *testSystem) sendAway(owner *Source, c *broker.Claim, how away) {
	if owner == nil {
		return
	}
	ts.set(func() {
		if how == goneUntilAlone {
			for s, topics := range ts.away {
				if s != owner {
					delete(topics, c.Topic)
				}
			}
		}
		if ts.away[owner] == nil {
			ts.away[owner] = make(map[string]away)
		}
		ts.away[owner][c.Topic] = how
	})
	signal(owner.m.(*modern).poke)
}

// watchSubscription lets a source subscribe to what it is not away from.
func (ts *testSystem) watchSubscription(s *Source) {
	m, ok := s.m.(*modern)
	if !ok {
		return
	}
	all := m.topics
	m.topics = func() (names []string) {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		for _, name := range all() {
			if !ts.stays(s, m, name) {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			return []string{"nothing"} // a subscription must have a name
		}
		return names
	}
}

// stays says whether s stays away from a topic.
func (ts *testSystem) stays(s *Source, m *modern, topic string) bool {
	how := ts.away[s][topic]
	if how == goneUntilReleased {
		for p := range m.m.owned {
			if p.topic == topic {
				return true
			}
		}
		if len(m.m.terms.topics) == 1 && m.m.terms.topics[0] == topic { // it has not begun
			return true
		}
	}
	if how == goneUntilAlone {
		for _, other := range ts.sources {
			if other != s && other.life.Context().Err() == nil && ts.away[other][topic] == 0 {
				return true
			}
		}
	}
	delete(ts.away[s], topic)
	return false
}

// expel takes a member out of the group in its name.
func (ts *testSystem) expel(t testing.TB, owner *Source) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = ts.group, owner.m.self().member, leaveEpoch
	if _, err := ts.admin.Request(context.Background(), req); err != nil {
		t.Fatal(err)
	}
}

// setSession gives the group's members so long a session, in the consumer protocol.
func (ts *testSystem) setSession(session time.Duration) {
	var same bool
	ts.set(func() { same, ts.session = ts.session == session, session })
	if ts.membership == "classic" || same {
		return
	}
	settings := map[string]string{sessionSetting: strconv.FormatInt(session.Milliseconds(), 10)}
	if ts.cluster != nil {
		ts.cluster.SetGroupConfigs(ts.group, settings)
		return
	}
	settings["consumer.heartbeat.interval.ms"] = "100"
	settings[batchSetting] = "0"
	ts.setGroup(settings)
}

// setGroup changes the group's settings on a real cluster.
func (ts *testSystem) setGroup(settings map[string]string) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = groupResource, ts.group
	for name, value := range settings {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, &value
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(context.Background(), ts.admin)
	if err != nil {
		panic(err)
	}
	if code := resp.Resources[0].ErrorCode; code != 0 {
		panic(codeErr(code))
	}
}

// actAs43 lets the fake tell a setting that Kafka has since 4.3. It checks commits by the epochs of partitions all the same.
func (ts *testSystem) actAs43() {
	ts.cluster.ControlKey(keyDescribeConfigs, func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		r := req.(*kmsg.DescribeConfigsRequest)
		if len(r.Resources) != 1 || r.Resources[0].ResourceType != groupResource {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
		rr := kmsg.NewDescribeConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = groupResource, r.Resources[0].ResourceName
		session := 45 * time.Second
		ts.set(func() { session = cmp.Or(ts.session, session) })
		for name, value := range map[string]string{sessionSetting: strconv.FormatInt(session.Milliseconds(), 10),
			batchSetting: "1000"} {
			c := kmsg.NewDescribeConfigsResponseResourceConfig()
			c.Name, c.Value = name, &value
			rr.Configs = append(rr.Configs, c)
		}
		resp.Resources = append(resp.Resources, rr)
		return resp, nil, true
	})
}
