package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// A commitSeen is a commit of partition 0 as the broker received it.
type commitSeen struct {
	member   string
	offset   int64
	finished int // above it, by the metadata
}

// watchCommits notes all commits of a cluster.
func (ts *testSystem) watchCommits() (seen func() []commitSeen) {
	var mu sync.Mutex
	var all []commitSeen
	ts.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		r := req.(*kmsg.OffsetCommitRequest)
		p := r.Topics[0].Partitions[0]
		c := commitSeen{member: r.MemberID, offset: p.Offset}
		if p.Metadata != nil {
			known, _ := decodeMetadata(p.Offset, *p.Metadata)
			c.finished = len(known.done)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, c)
		return nil, nil, false
	})
	return func() []commitSeen {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// TestLostUnderHandlers: a partition is lost while 13 of its messages are in handlers, and 3 are acked and not committed yet
// (f28). The acks of the 13 say ErrLost, the 3 are reported as Unconfirmed, and the next owner gets all 16. The loser never
// commits any of them, also not when it is in the group again.
func TestLostUnderHandlers(t *testing.T) {
	t.Parallel()
	const n, acked = 16, 3
	ts := newTestSystem(t, 1, 1)
	ts.lease = 5 * time.Second // none of the two is to lose it by itself
	seen := ts.watchCommits()
	want := ts.put(t, ts.topics[0], 0, n)
	cfg := ts.config(ts.net.link())
	cfg.CommitInterval, cfg.CommitMessages = 10*patience, 1_000_000
	cfg.ClientID = "loser" // its member ids begin so; on a busy machine each of the two may have several
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	loser := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true,
		out: make(chan broker.Message, n)}
	loser.open(t)
	ts.set(func() { ts.sources = append(ts.sources, s) })
	var out []broker.Message
	for range n {
		out = append(out, <-loser.out)
	}
	for _, m := range out[:acked] {
		if err := s.Ack(m.Claim, []uint64{m.Token}); err != nil {
			t.Errorf("an ack before the loss says %v", err)
		}
	}
	was := s.m.self().member
	next, err := NewSource(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	ts.set(func() { ts.sources = append(ts.sources, next) })
	winner := runSource(t, next)
	// Otherwise the plan that follows the winner's join may take the partition away in peace, and the loser commits what it has.
	eventually(t, "both are in the group", func() bool {
		mine, other := s.m.self(), next.m.self()
		return other.generation >= 0 && mine.generation == other.generation
	})
	ts.steal(t, out[0].Claim)
	<-out[0].Claim.Ended()
	for _, m := range out[acked:] {
		if err := s.Ack(m.Claim, []uint64{m.Token}); !errors.Is(err, broker.ErrLost) {
			t.Errorf("an ack of offset %d says %v, want ErrLost", m.Offset, err)
		}
	}
	eventually(t, "the next owner has all", func() bool { return winner.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	eventually(t, "it is told", func() bool { e, ok := loser.event(broker.Unconfirmed, ""); return ok && e.N == acked })
	eventually(t, "the loser is in the group again", func() bool {
		me := s.m.self()
		return me.member != was && me.generation >= 0
	})
	loser.close()
	if left := ts.unsettled(t); left != 0 {
		t.Errorf("%d messages are unsettled again", left)
	}
	if !strings.HasPrefix(was, cfg.ClientID) {
		t.Fatalf("member %s is not named for its client", was)
	}
	for _, c := range seen() {
		if strings.HasPrefix(c.member, cfg.ClientID) && (c.offset > 0 || c.finished > 0) {
			t.Errorf("%s, which has lost the partition, commits offset %d and %d finished spans", c.member, c.offset, c.finished)
		}
	}
}

// TestFinishedTravel: messages that are finished above one that is not do not come again to the next owner, whether the first one
// closed or was killed.
func TestFinishedTravel(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"closed": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			onEachProtocol(t, 1, func(t *testing.T, ts *testSystem) { testFinishedTravel(t, ts, killed) })
		})
	}
}

func testFinishedTravel(t *testing.T, ts *testSystem, killed bool) {
	const n = 20
	if ts.lease = lasting; killed {
		ts.lease = max(ts.short, 3*time.Second) // it is waited for
	}
	values := ts.put(t, ts.topics[0], 0, n)
	l := ts.net.link()
	s, err := NewSource(ts.config(l))
	if err != nil {
		t.Fatal(err)
	}
	first := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true,
		out: make(chan broker.Message, n)}
	first.open(t)
	want := make(map[string]int)
	for range n {
		m := <-first.out
		if m.Offset%3 == 0 {
			want[values[m.Offset]] = 1
		} else if err := s.Ack(m.Claim, []uint64{m.Token}); err != nil {
			t.Errorf("Ack: %v", err)
		}
	}
	eventually(t, "what is acked is committed", func() bool { return ts.unsettled(t) == int64(len(want)) })
	if killed {
		first.kill(l)
	} else {
		first.close()
	}
	next := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if got := next.seen(); !maps.Equal(got, want) {
		t.Errorf("the next owner got %v, want %v", got, want)
	}
}

// TestGiveBacks: messages are given back in random order, one by one and many at once, again and again. Each comes again until it
// is acked, and none while it is out.
func TestGiveBacks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testGiveBacks(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func testGiveBacks(t *testing.T, random *rand.Rand) {
	const n = 300
	ts := newTestSystem(t, 2, 1)
	ts.lease = patience // nothing comes again by itself
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: ts.topics[0], Partition: int32(i) % ts.parts, Value: fmt.Append(nil, i)})
	}
	if err := ts.admin.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	s, err := NewSource(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true,
		out: make(chan broker.Message, 10_000)}
	r.open(t)
	out := make(map[*broker.Claim]map[int64]broker.Message)
	acked, overdue := 0, time.After(patience)
	for acked < n {
		select {
		case m := <-r.out:
			if out[m.Claim] == nil {
				out[m.Claim] = make(map[int64]broker.Message)
			}
			if _, is := out[m.Claim][m.Offset]; is {
				t.Fatalf("%d/%d is out and came again", m.Partition, m.Offset)
			}
			out[m.Claim][m.Offset] = m
			if random.IntN(20) > 0 {
				continue
			}
		case <-time.After(10 * time.Millisecond): // all is out
		case <-overdue:
			t.Fatalf("%d of %d messages are acked", acked, n)
		}
		for c, ms := range out { // in an order of its own each time
			var back []broker.Back
			for o, m := range ms {
				switch random.IntN(4) {
				case 0: // stays out
					continue
				case 1:
					acked++
					if err := s.Ack(c, []uint64{m.Token}); err != nil {
						t.Fatalf("Ack: %v", err)
					}
				default:
					back = append(back, broker.Back{Token: m.Token})
				}
				delete(ms, o)
				if len(back) > 0 && random.IntN(3) == 0 || len(ms) == 0 {
					giveBack(t, s, c, &back)
				}
			}
			giveBack(t, s, c, &back)
		}
	}
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

func giveBack(t *testing.T, s *Source, c *broker.Claim, back *[]broker.Back) {
	t.Helper()
	if len(*back) == 0 {
		return
	}
	if err := s.Nack(c, *back); err != nil {
		t.Fatalf("Nack: %v", err)
	}
	*back = nil
}

// TestDyingConnections: each connection dies between 0.5 s and 1.5 s after it was made, for as long as 10,000 messages take
// (f22).
func TestDyingConnections(t *testing.T) {
	t.Parallel()
	const n = 10_000
	ts := newTestSystem(t, 4, 1)
	ts.lease = 3 * time.Second
	cfg := ts.config(ts.net.link())
	var deaths atomic.Int32
	dial := cfg.dial
	cfg.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err == nil {
			time.AfterFunc(500*time.Millisecond+rand.N(time.Second), func() {
				deaths.Add(1)
				_ = c.Close()
			})
		}
		return c, err
	}
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: ts.topics[0], Partition: int32(i) % ts.parts, Value: fmt.Append(nil, i)}
	}
	if err := ts.admin.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	times := make(map[string]int)
	c := startCrew(t, cfg, 16, func(m *broker.Message) {
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		times[string(m.Value)]++
		mu.Unlock()
	})
	began := time.Now()
	done := func() bool { mu.Lock(); defer mu.Unlock(); return len(times) == n }
	eventually(t, "a third is handled", func() bool { mu.Lock(); defer mu.Unlock(); return len(times) > n/3 })
	eventually(t, "two thirds are handled", func() bool { mu.Lock(); defer mu.Unlock(); return len(times) > 2*n/3 })
	eventually(t, "all are handled", done)
	took := time.Since(began)
	c.stop(t)
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	twice := -n
	for _, k := range times {
		twice += k
	}
	t.Logf("%d messages in %v, %d connections died, %d handled again", n, took.Round(time.Millisecond), deaths.Load(), twice)
	if deaths.Load() < 5 {
		t.Errorf("only %d connections died", deaths.Load())
	}
}
