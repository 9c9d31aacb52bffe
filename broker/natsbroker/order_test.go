package natsbroker_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

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
	c    *consumer.Consumer
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
		j.wrong = append(j.wrong, fmt.Sprintf("%s began %d of key %s when only those below %d were handled", r.name, n, key,
			j.done[key]))
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

// verdict fails when something was out of order.
func (j *judge) verdict(t *testing.T, total int) {
	t.Helper()
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
}

// join starts a process.
func (j *judge) join(t *testing.T, ts *testServer, name string, change ...func(*consumer.Config)) *replica {
	t.Helper()
	r := &replica{name: name, link: startProxy(t, ts.opts.Port)}
	src, err := natsbroker.NewSource(pinConfig(r.link.url()))
	if err != nil {
		t.Fatal(err)
	}
	r.src = src
	cfg := consumer.Config{
		Source: src, Order: consumer.OrderKey, Pool: consumer.Pool{Min: 8, Max: 16}, CloseTimeout: 3 * time.Second,
		Logger: zerolog.Nop(), // what is amiss is the judge's to say
		Retry: consumer.Retry{MaxAttempts: 1 << 20, Backoff: consumer.Backoff{Initial: 5 * time.Millisecond,
			Max: 20 * time.Millisecond}},
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
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.c = c
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
		ms[i] = broker.Outgoing{Topic: "s.a", Key: fmt.Appendf(nil, "k%02d", k),
			Value: binary.BigEndian.AppendUint32(nil, uint32(next[k]))}
		next[k]++
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Publish(ctx, ms); err != nil {
		t.Fatal(err)
	}
}

// Two processes share a durable, and one of them is killed, closed, or cut off for longer than its lease, or the server is
// started again, while messages come: those of each key are handled one after the other, over both, and none is lost.
func TestKeyOrderOverProcesses(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"kill", "close", "cut", "restart"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			j := newJudge()
			rs := []*replica{j.join(t, ts, "p0"), j.join(t, ts, "p1")}
			total, next := 0, map[int]int{}
			rounds := 2
			if full() {
				rounds = 3
			}
			for round := range rounds {
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
					pass(t, 5*time.Second, "its lease is over")
					r.link.heal()
				case "restart":
					ts.down()
					ts.up()
				}
				j.reach(t, total)
			}
			a.settled()
			j.verdict(t, total)
		})
	}
}

// Who stands by beside a process that does not get on with a backlog is healthy: no restart would help it.
func TestStandingByIsHealthy(t *testing.T) {
	t.Parallel()
	ts, _ := serveStream(t)
	feed(t, newPublisher(t, ts.url()), map[int]int{}, 500)
	j, hold := newJudge(), make(chan struct{})
	slow := func(c *consumer.Config) {
		c.Handler = func(ctx context.Context, _ *consumer.Message) error {
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
	}
	busy := j.join(t, ts, "busy", slow)
	eventually(t, "its workers are busy", func() bool { return busy.c.Stats().Pool.Busy > 0 })
	idle := j.join(t, ts, "idle", slow)
	eventually(t, "the other one knows that nothing is its own", func() bool {
		l := idle.c.Stats().Lag
		return idle.c.Stats().State == consumer.Running && l.Waiting == 0 && !l.At.IsZero()
	})
	const noProgress = 300 * time.Millisecond
	for end := time.Now().Add(5 * noProgress); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err := idle.c.Health(noProgress); err != nil {
			t.Fatal(err)
		}
	}
	if s := idle.c.Stats(); s.Pool.Live > 8 || s.InFlight > 0 {
		t.Errorf("it stands by with %d workers and %d messages", s.Pool.Live, s.InFlight)
	}
	close(hold)
}

// startCluster makes three servers that replicate what they store.
func startCluster(t *testing.T) (servers []*testServer) {
	t.Helper()
	var ports []int
	var routes []string
	for range 3 {
		p := freePort(t)
		ports, routes = append(ports, p), append(routes, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	for i, port := range ports {
		servers = append(servers, startServer(t, func(o *server.Options) {
			o.ServerName = fmt.Sprintf("n%d", i)
			o.Cluster = server.ClusterOpts{Name: "C", Host: "127.0.0.1", Port: port}
			o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		}))
	}
	return servers
}

// A new leader of the consumer knows nothing of the pin, while the process that has it is alive and well. Whoever is pinned next
// waits for it.
func TestKeyOrderOverLeaders(t *testing.T) {
	t.Parallel()
	servers := startCluster(t)
	ts := servers[0]
	a := ts.admin()
	a.stream(func(sc *jetstream.StreamConfig) { sc.Replicas = 3 })
	j := newJudge()
	for i, ts := range servers[1:] {
		// so that there is more for who is pinned next
		j.join(t, ts, fmt.Sprintf("p%d", i), func(c *consumer.Config) { c.Budget.Messages = 50 })
	}
	pub := newPublisher(t, ts.url())
	total, next := 0, map[int]int{}
	for range 3 {
		feed(t, pub, next, 1200)
		total += 1200
		j.reach(t, total-1000)
		leader := a.info().Cluster.Leader
		eventually(t, "another server leads", func() bool {
			m, err := a.nc.Request("$JS.API.CONSUMER.LEADER.STEPDOWN.S.c", nil, time.Second)
			if err != nil || !strings.Contains(string(m.Data), `"success":true`) {
				return false
			}
			time.Sleep(100 * time.Millisecond)
			c, err := a.js.Consumer(context.Background(), "S", "c")
			return err == nil && c.CachedInfo().Cluster.Leader != leader
		})
		j.reach(t, total)
	}
	a.settled()
	j.verdict(t, total)
}
