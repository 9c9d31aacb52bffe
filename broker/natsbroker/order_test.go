package natsbroker_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
)

// These tests run the whole engine, where an order needs both.

// A judge knows what became of each message of each key, and tells what came out of order.
type judge struct {
	mu       sync.Mutex
	done     map[string]int          // by key: all of its messages below this number were handled
	early    map[string]map[int]bool // handled beyond that
	running  map[string]*replica
	wrong    []string
	handled  int
	distinct int
}

func newJudge() *judge {
	return &judge{done: map[string]int{}, early: map[string]map[int]bool{}, running: map[string]*replica{}}
}

// A replica is one process of a durable.
type replica struct {
	name string
	link *proxy
	src  *natsbroker.Source
	stop func() error
	dead bool // killed: what its goroutines still do is not there. Guarded by judge.mu
}

func message(m *consumer.Message) (key string, n int) {
	return string(m.Key), int(binary.BigEndian.Uint32(m.Value))
}

// begin says whether the run counts.
func (j *judge) begin(r *replica, m *consumer.Message) bool {
	key, n := message(m)
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.dead {
		return false
	}
	if n > j.done[key] && !j.early[key][n] {
		j.wrong = append(j.wrong, fmt.Sprintf("%s began %d of key %s when only those below %d were handled", r.name, n, key, j.done[key]))
	}
	if other := j.running[key]; other != nil && !other.dead {
		j.wrong = append(j.wrong, fmt.Sprintf("%s began %d of key %s beside %s", r.name, n, key, other.name))
	}
	j.running[key] = r
	return true
}

func (j *judge) end(r *replica, m *consumer.Message, handled bool) {
	key, n := message(m)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.running[key] == r {
		delete(j.running, key)
	}
	if r.dead || !handled {
		return
	}
	j.handled++
	if n < j.done[key] || j.early[key][n] {
		return
	}
	j.distinct++
	if j.early[key] == nil {
		j.early[key] = map[int]bool{}
	}
	for j.early[key][n] = true; j.early[key][j.done[key]]; j.done[key]++ {
		delete(j.early[key], j.done[key])
	}
}

// reach waits until n messages were handled; it fails when for long none is.
func (j *judge) reach(t *testing.T, n int) {
	t.Helper()
	count, since := -1, time.Now()
	for {
		j.mu.Lock()
		now := j.distinct
		j.mu.Unlock()
		switch {
		case now >= n:
			return
		case now > count:
			count, since = now, time.Now()
		case time.Since(since) > patience:
			t.Fatalf("%d messages were handled, of %d, and none for %v", now, n, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// join starts a process.
func (j *judge) join(t *testing.T, ts *testServer, name string) *replica {
	t.Helper()
	r := &replica{name: name, link: startProxy(t, ts.opts.Port)}
	src, err := natsbroker.NewSource(pinConfig(r.link.url()))
	if err != nil {
		t.Fatal(err)
	}
	r.src = src
	c, err := consumer.New(consumer.Config{
		Source: src, Order: consumer.OrderKey, Pool: consumer.Pool{Min: 8, Max: 16}, CloseTimeout: 3 * time.Second,
		Retry: consumer.Retry{MaxAttempts: 1 << 20, Backoff: consumer.Backoff{Initial: 5 * time.Millisecond, Max: 20 * time.Millisecond}},
		Handler: func(ctx context.Context, m *consumer.Message) error {
			if !j.begin(r, m) {
				return errors.New("killed")
			}
			time.Sleep(rand.N(4 * time.Millisecond))
			err := ctx.Err()
			if err == nil && rand.N(100) == 0 {
				err = errors.New("one in a hundred fails")
			}
			j.end(r, m, err == nil)
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- c.Run(ctx) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-over })
	t.Cleanup(func() { _ = r.stop() })
	return r
}

func (j *judge) kill(r *replica) {
	r.link.shut()
	j.mu.Lock()
	r.dead = true
	j.mu.Unlock()
	past, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.src.Close(past)
	_ = r.stop()
}

// feed publishes n messages under 50 keys, numbered within each.
func feed(t *testing.T, p broker.Publisher, next map[int]int, n int) {
	t.Helper()
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		k := rand.N(50)
		ms[i] = broker.Outgoing{Topic: "s.a", Key: fmt.Appendf(nil, "k%02d", k), Value: binary.BigEndian.AppendUint32(nil, uint32(next[k]))}
		next[k]++
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Publish(ctx, ms); err != nil {
		t.Fatal(err)
	}
}

// Two processes share a durable, and one of them is killed, closed, or cut off for longer than its lease, or the server is started again,
// while messages come: those of each key are handled one after the other, over both, and none is lost.
func TestKeyOrderOverProcesses(t *testing.T) {
	for _, what := range []string{"kill", "close", "cut", "restart"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ts := startServer(t)
			a := ts.admin()
			a.stream()
			j := newJudge()
			rs := []*replica{j.join(t, ts, "p0"), j.join(t, ts, "p1")}
			total, next := 0, map[int]int{}
			for round := range 3 {
				pub := newPublisher(t, ts.url())
				feed(t, pub, next, 400)
				total += 400
				j.reach(t, total-300)
				r := rs[round%2] // the one that is pinned, or the one that stands by
				switch what {
				case "kill":
					j.kill(r)
					rs[round%2] = j.join(t, ts, fmt.Sprintf("p%d", round+2))
				case "close":
					if err := r.stop(); err != nil {
						t.Fatal(err)
					}
					rs[round%2] = j.join(t, ts, fmt.Sprintf("p%d", round+2))
				case "cut":
					r.link.cut(toServer, toClient)
					feed(t, pub, next, 200)
					total += 200
					end := time.Now().Add(5 * time.Second)
					eventually(t, "its lease is over", func() bool { return time.Now().After(end) })
					r.link.heal()
				case "restart":
					ts.down()
					ts.up()
				}
				j.reach(t, total)
			}
			a.settled()
			j.mu.Lock()
			defer j.mu.Unlock()
			for i, w := range j.wrong {
				if i == 10 {
					t.Errorf("and %d more", len(j.wrong)-10)
					break
				}
				t.Error(w)
			}
			t.Logf("%d messages, handled %d times", total, j.handled)
		})
	}
}
