package kafkabroker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestHandOver: two members with handlers that take a second become three, and two again, with each protocol of groups in one
// run. With the consumer protocol a partition that stays does not stop, and one that moves stops for its own handlers only. In
// both nothing is lost, and nothing comes twice. It prints for how long partitions stood still.
func TestHandOver(t *testing.T) {
	setup := brokertest.Setup{Topics: 1, Partitions: 8}
	t.Parallel()
	for _, protocol := range []string{"sticky", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			t.Run("fake", func(t *testing.T) { testHandOver(t, fakeSystem(t, setup, protocol)) })
			t.Run("real", func(t *testing.T) { testHandOver(t, realSystem(t, setup, protocol)) })
		})
	}
}

const longHandler = time.Second

func testHandOver(t *testing.T, ts *testSystem) {
	ts.lease = 10 * time.Second
	cfg := ts.config(ts.net.link())
	cfg.dial, cfg.plan, cfg.RevokeWait, cfg.RebalanceTimeout, cfg.HeartbeatInterval = nil, nil, 5*time.Second, 20*time.Second,
		time.Second
	x := &handOver{t: t, ts: ts, cfg: cfg, runs: make(map[int32][]handled), times: make(map[string]int)}
	x.put(40)
	a, b := x.start(), x.start()
	x.settle("two members", 4, 4)
	x.phase("2 to 3", func() *timedMember { return x.start() })
	c := x.last
	x.phase("3 to 2", func() *timedMember { c.stop(t); return nil })
	a.stop(t)
	b.stop(t)
	for v, n := range x.times {
		if n > 1 {
			t.Errorf("%s came %d times", v, n)
		}
	}
	if left := ts.unsettled(t); left != int64(x.made-len(x.times)) {
		t.Errorf("%d messages were made, %d handled, and %d are not settled", x.made, len(x.times), left)
	}
}

// A handOver measures for how long partitions stand still while members come and go.
type handOver struct {
	t    *testing.T
	ts   *testSystem
	cfg  Config
	made int
	last *timedMember

	mu      sync.Mutex
	members []*timedMember
	runs    map[int32][]handled // by partition
	times   map[string]int
}

// A handled is the run of a handler.
type handled struct {
	by         int
	begun, end time.Time
}

// A timedMember handles the messages of each partition one after the other.
type timedMember struct {
	x  *handOver
	no int
	s  *Source
	wg sync.WaitGroup
	// stopping: what has not begun is given back.
	stopping atomic.Bool
}

func (x *handOver) put(each int) {
	for i := range each * int(x.ts.parts) {
		x.ts.admin.Produce(context.Background(), &kgo.Record{Topic: x.ts.topics[0], Partition: int32(i) % x.ts.parts,
			Value: []byte(fmt.Sprint(x.made))}, nil)
		x.made++
	}
	if err := x.ts.admin.Flush(context.Background()); err != nil {
		x.t.Fatal(err)
	}
}

func (x *handOver) start() *timedMember {
	s, err := NewSource(x.cfg)
	if err != nil {
		x.t.Fatal(err)
	}
	x.mu.Lock()
	m := &timedMember{x: x, s: s, no: len(x.members)}
	x.members, x.last = append(x.members, m), m
	x.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1000, Bytes: 8 << 20},
		Observe: func(broker.Event) {}}); err != nil {
		x.t.Fatal(err)
	}
	m.wg.Go(m.run)
	return m
}

func (m *timedMember) run() {
	queues := make(map[*broker.Claim]chan broker.Message)
	defer func() {
		for _, q := range queues {
			close(q)
		}
	}()
	dst := make([]broker.Message, 16)
	for {
		n, err := m.s.Receive(dst)
		if err != nil {
			return
		}
		for _, msg := range dst[:n] {
			q := queues[msg.Claim]
			if q == nil {
				q = make(chan broker.Message, 100)
				queues[msg.Claim] = q
				m.wg.Go(func() {
					for msg := range q {
						m.handle(msg)
					}
				})
			}
			q <- msg
		}
	}
}

func (m *timedMember) handle(msg broker.Message) {
	if m.stopping.Load() || !msg.Claim.Startable() {
		_ = m.s.Nack(msg.Claim, []broker.Back{{Token: msg.Token}})
		return
	}
	begun := time.Now()
	time.Sleep(longHandler)
	_ = m.s.Ack(msg.Claim, []uint64{msg.Token})
	m.x.mu.Lock()
	defer m.x.mu.Unlock()
	m.x.runs[msg.Partition] = append(m.x.runs[msg.Partition], handled{m.no, begun, time.Now()})
	m.x.times[string(msg.Value)]++
}

func (m *timedMember) stop(t *testing.T) {
	m.stopping.Store(true)
	m.s.Stop()
	m.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// settle waits until each partition was handled since, by members that have so many.
func (x *handOver) settle(what string, want ...int) {
	began := time.Now()
	long(x.t, what, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		has := make(map[int]int)
		for no := range x.ts.parts {
			runs := x.runs[no]
			if len(runs) == 0 || runs[len(runs)-1].begun.Before(began) {
				return false
			}
			has[runs[len(runs)-1].by]++
		}
		return slices.Equal(slices.Sorted(maps.Values(has)), want)
	})
}

// phase lets a member come or go, and says what that did to partitions.
func (x *handOver) phase(what string, do func() *timedMember) {
	began := time.Now()
	before := x.owners()
	want := []int{4, 4}
	if do() != nil {
		want = []int{2, 3, 3}
	}
	x.settle(what, want...)
	after := x.owners()
	var stayed, moved []time.Duration
	x.mu.Lock()
	for no := range x.ts.parts {
		stood := stood(x.runs[no], began)
		if before[no] == after[no] {
			stayed = append(stayed, stood)
		} else {
			moved = append(moved, stood)
		}
	}
	x.mu.Unlock()
	slices.Sort(stayed)
	slices.Sort(moved)
	x.t.Logf("%s, %s: %d stayed, and stood still for %v; %d moved, for %v", x.ts.membership, what, len(stayed), stayed, len(moved),
		moved)
	if len(moved) == 0 || len(stayed) == 0 {
		x.t.Errorf("%s: %d stayed, %d moved", what, len(stayed), len(moved))
	}
}

func (x *handOver) owners() map[int32]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	by := make(map[int32]int)
	for no, runs := range x.runs {
		by[no] = runs[len(runs)-1].by
	}
	return by
}

// stood is the longest pause between two runs since then.
func stood(runs []handled, since time.Time) (most time.Duration) {
	for i := 1; i < len(runs); i++ {
		if runs[i].begun.After(since) {
			most = max(most, runs[i].begun.Sub(runs[i-1].end))
		}
	}
	return most.Round(time.Millisecond)
}
