package kafkabroker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestAutoReal: which protocol a process chooses on Apache Kafka, what it says of it in one line, and that the broker says the
// same: for a new group, for one that has classic members, and for one that they have left.
func TestAutoReal(t *testing.T) {
	ts := realSystem(t, brokertest.Setup{Topics: 1, Partitions: 2}, "sticky")
	ts.lease = 10 * time.Second
	auto := ts.config(ts.net.link())
	auto.Membership, auto.plan = "auto", nil
	fit := ts.hasEpochs(t)
	want := map[bool]string{true: "consumer", false: "classic"}[fit]
	var all []*runner
	start := func(cfg Config) *runner {
		r := startRunner(t, cfg)
		all = append(all, r)
		return r
	}
	made := 0
	check := func(what string, r *runner, protocol string) {
		t.Helper()
		values := ts.put(t, ts.topics[0], made, 20)
		made += len(values)
		eventually(t, what+": all came", func() bool {
			return !slices.ContainsFunc(values, func(v string) bool {
				return !slices.ContainsFunc(all, func(r *runner) bool { return r.seen()[v] > 0 })
			})
		})
		lines := r.notices()
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "group "+ts.group+": protocol "+protocol+": ") {
			t.Errorf("%s: it says %q, want one line: protocol %s", what, lines, protocol)
		}
		v, err := NewLagView(LagViewConfig{Connection: Connection{Brokers: ts.brokers}, Group: ts.group})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		if got, err := v.Protocol(t.Context()); err != nil || got != protocol {
			t.Errorf("%s: the broker says that the protocol is %q, %v, want %q", what, got, err, protocol)
		}
		t.Logf("%s: %s", what, strings.Join(lines, "; "))
	}
	r := start(auto)
	check("a new group", r, want)
	if name := ts.assignor(t); fit && name != "uniform" {
		t.Errorf("the broker assigns by %q, want uniform", name)
	}
	r.close()
	classic := auto
	classic.Membership = "classic"
	c := start(classic)
	check("a group that classic members are in", start(auto), "classic")
	c.close()
	all[len(all)-1].close()
	auto.Balancer = "range"
	r = start(auto)
	check("a group that they have left", r, want)
	if name := ts.assignor(t); fit && name != "range" {
		t.Errorf("the broker assigns by %q, want range", name)
	}
	r.close()
	if left := ts.unsettled(t); left != 0 {
		t.Errorf("%d messages are not committed", left)
	}
}

// notices are what it was told to have chosen, but for where it begins.
func (r *runner) notices() (lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == broker.Notice && !strings.Contains(e.Err.Error(), "no committed offset") {
			lines = append(lines, e.Err.Error())
		}
	}
	return lines
}

// assignor is how the broker assigns the group's partitions.
func (ts *testSystem) assignor(t testing.TB) string {
	t.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{ts.group}
	resp, err := req.RequestWith(t.Context(), ts.admin)
	if err != nil || len(resp.Groups) != 1 {
		return "" // a broker that does not know such groups
	}
	return resp.Groups[0].AssignorName
}

// hasEpochs says whether the broker checks commits by the epochs of partitions, as Kafka does since 4.3: what the group's
// settings have then.
func (ts *testSystem) hasEpochs(t testing.TB) bool {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	group := kmsg.NewDescribeConfigsRequestResource()
	group.ResourceType, group.ResourceName = groupResource, ts.group
	req.Resources = append(req.Resources, group)
	resp, err := req.RequestWith(t.Context(), ts.admin)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(resp.Resources[0].Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool {
		return c.Name == batchSetting
	})
}
