package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// commits notes who committed what of partition 0, as the broker received it.
type commits struct {
	mu  sync.Mutex
	all []string // member ids
}

func (c *commits) watch(ts *testSystem) {
	ts.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, req.(*kmsg.OffsetCommitRequest).MemberID)
		return nil, nil, false
	})
}

func (c *commits) since(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all[n:])
}

// TestLostUnderHandlers: a partition is lost while 16 of its messages are in handlers (f28). Their acks say ErrLost, nobody commits it under the name that
// was lost, and the next owner gets all of them.
func TestLostUnderHandlers(t *testing.T) {
	const n = 16
	ts := newTestSystem(t, 1, 1)
	var seen commits
	seen.watch(ts)
	want := ts.put(t, ts.topics[0], 0, n)
	s, err := New(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	ts.set(func() { ts.sources = append(ts.sources, s) })
	held := make(chan broker.Message, n)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: n, Bytes: 1 << 20}, Observe: func(broker.Event) {}}); err != nil {
		t.Fatal(err)
	}
	var end sync.WaitGroup
	end.Go(func() {
		dst := make([]broker.Message, n)
		for {
			k, err := s.Receive(dst)
			if err != nil {
				return
			}
			for _, m := range dst[:k] {
				held <- m
			}
		}
	})
	defer func() {
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		end.Wait()
	}()
	var out []broker.Message
	for range n {
		out = append(out, <-held)
	}
	eventually(t, "its beginning is committed", func() bool { return ts.starts() == 1 })
	loser := s.m.seat(partitionID{}).member
	next, err := New(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	ts.set(func() { ts.sources = append(ts.sources, next) })
	r := runSource(t, next)
	before := len(seen.since(0))
	ts.steal(t, out[0].Claim)
	<-out[0].Claim.Ended()
	for _, m := range out {
		if err := s.Ack(m.Claim, []uint64{m.Token}); !errors.Is(err, broker.ErrLost) {
			t.Errorf("an ack of offset %d says %v, want ErrLost", m.Offset, err)
		}
	}
	eventually(t, "the next owner has all", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if after := seen.since(before); slices.Contains(after, loser) || len(after) == 0 {
		t.Errorf("after the loss commits came from %q; the lost one is %s", after, loser)
	}
}

// TestDyingConnections: each connection dies between 0.5 s and 1.5 s after it was made, for as long as 10,000 messages take (f22).
func TestDyingConnections(t *testing.T) {
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
