//go:build unix

package kafkabroker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestRollingProtocols: three processes under load are restarted one after the other, first as they are, in the classic
// protocol, then into the consumer protocol, and then back. Nothing is lost, and nothing comes twice. It prints for how long a
// partition was nobody's at most in each of the three: a change of the protocol must not stop more than any rolling deploy did
// before. Intervals are those that users have.
func TestRollingProtocols(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	ts := realSystem(t, brokertest.Setup{Topics: 1, Partitions: 6}, "consumer")
	ts.lease = 10 * time.Second
	cfg := ts.config(ts.net.link())
	cfg.dial, cfg.plan, cfg.HeartbeatInterval, cfg.CommitInterval, cfg.Poll = nil, nil, 0, 0, 0
	cfg.RevokeWait, cfg.RebalanceTimeout = 5*time.Second, 20*time.Second
	ts.setGroup(map[string]string{batchSetting: "1000", "consumer.heartbeat.interval.ms": "5000"})
	x := &deploy{migration: migration{t: t, ts: ts}, cfg: cfg}
	for range 3 {
		x.add("classic")
	}
	x.settle(3, false)
	endLoad := x.load(t)
	x.roll("classic as before", "classic", 3, false)
	x.roll("to consumer", "consumer", 3, true)
	x.roll("back to classic", "classic", 3, false)
	endLoad()
	long(t, "all came", func() bool { return len(x.seen()) == len(x.want) })
	for _, m := range x.all[len(x.all)-3:] {
		m.r.close()
	}
	if n := committedOn(t, ts.admin, ts.group, ts.topics[0], ts.parts); n != int64(len(x.want)) {
		t.Errorf("%d of %d messages are committed", n, len(x.want))
	}
	twice := 0
	for _, n := range x.seen() {
		if n > 1 {
			twice++
		}
	}
	t.Logf("%d messages, %d came twice", len(x.want), twice)
	if twice > 0 {
		t.Errorf("%d messages came twice", twice)
	}
}

// A deploy is a group of three whose processes are replaced one by one.
type deploy struct {
	migration
	cfg Config

	mu    sync.Mutex
	turns map[int32][]turn // of each partition, in their order
}

// A turn is a partition that begins to be somebody's, or ends.
type turn struct {
	at     time.Time
	begins bool
}

func (x *deploy) add(membership string) {
	cfg := x.cfg
	cfg.Membership = membership
	s, err := NewSource(cfg)
	if err != nil {
		x.t.Fatal(err)
	}
	r := &runner{t: x.t, s: s, end: make(chan struct{}), times: make(map[string]int), watch: x.note}
	r.open(x.t)
	x.all = append(x.all, migrant{r: r})
}

func (x *deploy) note(e broker.Event) {
	if e.Kind != broker.Assigned && e.Kind != broker.Ended {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.turns == nil {
		x.turns = make(map[int32][]turn)
	}
	x.turns[e.Claim.Partition] = append(x.turns[e.Claim.Partition], turn{time.Now(), e.Kind == broker.Assigned})
}

// roll restarts the three, one after the other.
func (x *deploy) roll(what, membership string, n int, modern bool) {
	began := time.Now()
	for range n {
		x.all[len(x.all)-n].r.close()
		x.add(membership)
		x.settle(n, membership == "consumer" || !x.done(membership))
	}
	if _, now := x.members(); now != modern {
		x.t.Errorf("%s: the group's protocol is not the one that all members have", what)
	}
	x.t.Logf("%s: a partition was nobody's for %v at most", what, x.longest(began))
}

// done says whether all that run have that membership.
func (x *deploy) done(membership string) bool {
	for _, m := range x.all[len(x.all)-3:] {
		if m.r.s.cfg.Membership != membership {
			return false
		}
	}
	return true
}

// settle waits until the group has so many members, and each partition is somebody's.
func (x *deploy) settle(members int, modern bool) {
	long(x.t, "the group is whole", func() bool {
		n, is := x.members()
		return n == members && is == modern && x.owned() == int(x.ts.parts)
	})
}

// owned is how many partitions are somebody's.
func (x *deploy) owned() (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, turns := range x.turns {
		owners := 0
		for _, u := range turns {
			if u.begins {
				owners++
			} else {
				owners--
			}
		}
		if owners == 1 {
			n++
		}
	}
	return n
}

// longest is for how long a partition was nobody's since then, at most.
func (x *deploy) longest(since time.Time) (most time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, turns := range x.turns {
		turns = slices.SortedStableFunc(slices.Values(turns), func(a, b turn) int { return a.at.Compare(b.at) })
		owners := 0
		for i, u := range turns {
			if u.begins {
				if owners == 0 && i > 0 && u.at.After(since) {
					most = max(most, u.at.Sub(turns[i-1].at))
				}
				owners++
			} else {
				owners--
			}
		}
	}
	return most.Round(time.Millisecond)
}

// load puts a message into each partition again and again, until end is called.
func (x *deploy) load(t *testing.T) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			var rs []*kgo.Record
			for no := range x.ts.parts {
				v := fmt.Sprint(len(x.want))
				x.want = append(x.want, v)
				rs = append(rs, &kgo.Record{Topic: x.ts.topics[0], Partition: no, Value: []byte(v)})
			}
			if err := x.ts.admin.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
				t.Error(err)
				return
			}
			pause(ctx, 20*time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}
