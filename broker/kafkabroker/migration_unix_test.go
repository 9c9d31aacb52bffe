//go:build unix

package kafkabroker

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// TestMigration: a group of classic members, Java and longshore, goes over to the consumer protocol while it runs, one member
// after the other, and back. Nothing is lost, and nothing comes twice.
func TestMigration(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	k := kafkad.Shared(t)
	ts := realSystem(t, brokertest.Setup{Topics: 1, Partitions: 6}, "consumer")
	ts.lease = 10 * time.Second
	x := &migration{t: t, ts: ts, k: k}
	for _, step := range []struct {
		what    string
		do      func()
		members int
		modern  bool // the group's protocol then
	}{
		{"one of longshore, classic", x.longshore("classic"), 1, false},
		{"a classic one of Java beside it", x.java("CooperativeStickyAssignor"), 2, false},
		{"one that the broker assigns to", x.longshore("consumer"), 3, true},
		{"the classic one of longshore ends", x.end(0), 2, true},
		{"another one of the new protocol", x.longshore("consumer"), 3, true},
		{"the classic one of Java ends", x.end(1), 2, true},
		{"one of Java of the new protocol", x.java(""), 3, true},
		{"back: one of longshore, classic", x.longshore("classic"), 4, true},
		{"one of the new protocol ends", x.end(2), 3, true},
		{"the one of Java ends", x.end(4), 2, true},
		{"a classic one of Java", x.java("CooperativeStickyAssignor"), 3, true},
		{"the last one of the new protocol ends", x.end(3), 2, false},
	} {
		t.Logf("%v %s", time.Now().Format("05.000"), step.what)
		x.put(60)
		step.do()
		long(t, step.what+": the group has its members", func() bool {
			n, modern := x.members()
			return n == step.members && modern == step.modern
		})
		x.put(60)
		long(t, step.what+": all were seen", func() bool { return len(x.seen()) == len(x.want) })
	}
	x.end(5)()
	x.end(6)()
	if n := committedOn(t, ts.admin, ts.group, ts.topics[0], ts.parts); n != int64(len(x.want)) {
		t.Errorf("%d of %d messages are committed", n, len(x.want))
	}
	twice := 0
	for v, n := range x.seen() {
		if n > 1 {
			twice++
			t.Logf("%s came %d times", v, n)
		}
	}
	t.Logf("%d messages, %d came twice", len(x.want), twice)
	if twice > 0 {
		t.Errorf("%d messages came twice", twice)
	}
}

// A migration is a group whose members come and go.
type migration struct {
	t    *testing.T
	ts   *testSystem
	k    *kafkad.Cluster
	want []string
	all  []migrant
}

// A migrant is a member of either kind.
type migrant struct {
	r    *runner
	java *kafkad.JavaMember
}

func (x *migration) put(n int) {
	x.want = append(x.want, x.ts.put(x.t, x.ts.topics[0], len(x.want), n)...)
}

func (x *migration) longshore(membership string) func() {
	return func() {
		cfg := x.ts.config(x.ts.net.link())
		cfg.Membership, cfg.plan = membership, nil
		cfg.RevokeWait, cfg.RebalanceTimeout = 5*time.Second, 20*time.Second
		x.all = append(x.all, migrant{r: startRunner(x.t, cfg)})
	}
}

func (x *migration) java(assignor string) func() {
	return func() {
		m, err := x.k.StartJavaMember(x.ts.topics[0], x.ts.group, assignor, nil)
		if errors.Is(err, kafkad.ErrNoTool) && os.Getenv("LONGSHORE_REAL") == "" {
			x.t.Skip(err)
		}
		if err != nil {
			x.t.Fatal(err)
		}
		x.t.Cleanup(func() {
			if m.Kill(); x.t.Failed() {
				x.t.Log(m.Log())
			}
		})
		x.all = append(x.all, migrant{java: m})
	}
}

func (x *migration) end(i int) func() {
	return func() {
		if m := x.all[i]; m.r != nil {
			m.r.close()
		} else if err := m.java.Stop(patience); err != nil {
			x.t.Error(err)
		}
	}
}

func (x *migration) seen() map[string]int {
	all := make(map[string]int)
	for _, m := range x.all {
		if m.java != nil {
			for _, v := range m.java.Seen() {
				all[v]++
			}
			continue
		}
		for v, n := range m.r.seen() {
			all[v] += n
		}
	}
	return all
}

// members is how many the group has while it is stable, and whether the broker assigns to it.
func (x *migration) members() (n int, modern bool) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{x.ts.group}
	g := ask(x.t, x.ts.admin, req, func(*kmsg.ConsumerGroupDescribeResponse) int16 { return 0 }).Groups[0]
	switch {
	case g.ErrorCode == kerr.GroupIDNotFound.Code:
		return x.ts.members(x.t), false
	case g.ErrorCode != 0 || g.State != "Stable":
		return -1, true
	}
	return len(g.Members), true
}
