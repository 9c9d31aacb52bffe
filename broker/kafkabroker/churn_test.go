package kafkabroker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
)

// A crew handles what a source hands out with some workers, as the engine would: what is not begun when a claim turns is given
// back.
type crew struct {
	s    *Source
	wg   sync.WaitGroup
	work chan broker.Message
}

func startCrew(t *testing.T, cfg Config, workers int, handle func(*broker.Message)) *crew {
	t.Helper()
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 4 * workers, Bytes: 8 << 20},
		Observe: func(broker.Event) {}}); err != nil {
		t.Fatal(err)
	}
	c := &crew{s: s, work: make(chan broker.Message, 4*workers)}
	for range workers {
		c.wg.Go(func() {
			for m := range c.work {
				if !m.Claim.Startable() {
					_ = s.Nack(m.Claim, []broker.Back{{Token: m.Token}})
					continue
				}
				handle(&m)
				_ = s.Ack(m.Claim, []uint64{m.Token})
			}
		})
	}
	c.wg.Go(func() {
		defer close(c.work)
		dst := make([]broker.Message, 16)
		for {
			n, err := s.Receive(dst)
			if err != nil {
				return
			}
			for _, m := range dst[:n] {
				c.work <- m
			}
		}
	})
	return c
}

// stop drains as the engine does: nothing new, what runs is waited for.
func (c *crew) stop(t *testing.T) {
	t.Helper()
	c.s.Stop()
	c.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.s.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestChurn: a member joins and leaves every 300 ms under load, with handlers of 5 ms and one of a hundred of 400 ms (f27).
// Nothing is lost and nothing comes twice, since all members leave in good order.
func TestChurn(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 8, testChurn)
}

func testChurn(t *testing.T, ts *testSystem) {
	ts.lease = lasting // nobody loses its session, however long the machine stands still
	cfg := ts.config(ts.net.link())
	cfg.dial, cfg.plan = nil, nil
	cfg.RevokeWait, cfg.RebalanceTimeout = 5*time.Second, 10*time.Second
	var mu sync.Mutex
	times, slow := make(map[string]int), 0
	handle := func(m *broker.Message) {
		d := 5 * time.Millisecond
		mu.Lock()
		times[string(m.Value)]++
		if slow++; slow%100 == 0 {
			d = 400 * time.Millisecond
		}
		mu.Unlock()
		time.Sleep(d)
	}
	stay := startCrew(t, cfg, 16, handle)
	over := make(chan int)
	go func() {
		n := 0
		for end := time.Now().Add(6 * time.Second); time.Now().Before(end); n++ {
			ts.admin.Produce(context.Background(), &kgo.Record{Topic: cfg.Topics[0], Partition: int32(n) % ts.parts,
				Value: []byte(fmt.Sprint(n))}, nil)
			time.Sleep(time.Millisecond)
		}
		_ = ts.admin.Flush(context.Background())
		over <- n
	}()
	n, joins := 0, 0
	for n == 0 {
		c := startCrew(t, cfg, 16, handle)
		joins++
		select {
		case n = <-over:
		case <-time.After(300 * time.Millisecond):
		}
		c.stop(t)
		select {
		case n = <-over:
		case <-time.After(300 * time.Millisecond):
		}
	}
	seen := func() int { mu.Lock(); defer mu.Unlock(); return len(times) }
	eventually(t, "all messages were handled", func() bool { return seen() == n })
	stay.stop(t)
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	twice := 0
	for _, k := range times {
		twice += k - 1
	}
	t.Logf("%d messages, %d joins, %d handled again", n, joins, twice)
	if twice > n/200 {
		t.Errorf("%d of %d messages were handled again", twice, n)
	}
}
