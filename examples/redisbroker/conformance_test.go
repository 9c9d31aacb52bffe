package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/broker/brokertest/faultproxy"
)

const testLease = 400 * time.Millisecond

// TestConformance runs the suite on a redis-server, where there is one.
func TestConformance(t *testing.T) {
	brokertest.Run(t, harness(func(t testing.TB) string { return sharedServer(t) }))
}

// TestConformanceMini runs what a fake of Redis in this process can do.
func TestConformanceMini(t *testing.T) {
	h := harness(miniServer)
	made := h.New
	h.New = func(t testing.TB, s brokertest.Setup) *brokertest.System {
		sys := made(t, s)
		sys.Trim, sys.Recreate = nil, nil
		join := sys.Join
		sys.Join = func(t testing.TB) *brokertest.Process {
			p := join(t)
			p.EndReceive = nil
			return p
		}
		return sys
	}
	h.Cannot["Trim"] = "miniredis does not count what a stream ever had, and keeps pending what is gone"
	h.Cannot["Recreate"], h.Cannot["EndReceive"] = h.Cannot["Trim"], "miniredis has no ACLs"
	for _, name := range brokertest.Cases() {
		switch name {
		case "Lag", "LagOfTwo", "LagStaysUnknown", "LagWaiting": // it takes a stream's length for the group's lag
		case "ForgottenMany": // it looks through all that is pending for each entry
		default:
			h.Only = append(h.Only, name)
		}
	}
	brokertest.Run(t, h)
}

func harness(server func(testing.TB) string) brokertest.Harness {
	const shared = "a process may take any message whose lease ran out, and nobody takes a claim"
	return brokertest.Harness{
		New:    func(t testing.TB, s brokertest.Setup) *brokertest.System { return newSystem(t, s, server(t)) },
		Traits: broker.Traits{Attempts: broker.AtMost},
		Lease:  testLease,

		NoPartitions: true, LateAcks: true, DropsSettled: true, KeepsRuns: true, StopHandsOver: true, SideBySide: true,
		Goroutines: []string{"redisbroker.(*Source)", "redisbroker.(*sender)", "redisbroker.(*keeper)"},
		Cannot: map[string]string{
			"Floors": "nothing is committed by position", "Revoke": shared, "Steal": shared, "Bounce": shared,
			"Undecodable": "an entry is a list of fields, and any list is a message",
		},
	}
}

var cases atomic.Int64

// A system is a group and its streams for one case.
type system struct {
	addr    string
	rdb     *redis.Client
	group   string
	topics  []string
	lease   time.Duration
	hook    hook
	latency time.Duration
	links   []*faultproxy.Proxy
	isDown  bool
}

func newSystem(t testing.TB, setup brokertest.Setup, addr string) *brokertest.System {
	s := &system{addr: addr, group: fmt.Sprintf("group-%d", cases.Add(1)), lease: testLease}
	s.rdb = redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() {
		s.rdb.Del(context.Background(), s.topics...)
		_ = s.rdb.Close()
	})
	if setup.Lease != 0 {
		s.lease = setup.Lease
	}
	for i := range setup.Topics {
		s.topics = append(s.topics, fmt.Sprintf("%s-topic-%d", s.group, i))
	}
	s.makeGroups(t)
	sys := &brokertest.System{
		Topics: s.topics, Join: s.join, Produce: s.produce, Unsettled: s.unsettled, MaxMessageBytes: 1 << 20,
		Pulls:         func(testing.TB) int64 { return s.hook.pulls.Load() },
		Heartbeats:    func(testing.TB) int64 { return s.hook.beats.Load() },
		Publisher:     s.publisher,
		Down:          func(testing.TB) { s.setDown(true) },
		Up:            func(testing.TB) { s.setDown(false) },
		Redeliver:     s.redeliver,
		ForgetSettles: s.forget,
		FailSettles:   func(_ testing.TB, n int) { s.hook.fails.Store(int64(n)) },
		SlowSettles:   s.slow,
		Trim:          s.trim,
		Recreate:      s.recreate,
		Misconfigured: s.misconfigured,
	}
	return sys
}

func (s *system) must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *system) makeGroups(t testing.TB) {
	t.Helper()
	for _, name := range s.topics {
		err := s.rdb.XGroupCreateMkStream(context.Background(), name, s.group, "0").Err()
		if err != nil && !strings.Contains(err.Error(), "BUSYGROUP") { // a process was faster
			t.Fatal(err)
		}
	}
}

// proxy makes one for a process.
func (s *system) proxy(t testing.TB) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.New(s.addr)
	s.must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	p.Refuse(s.isDown)
	p.Set(faultproxy.ToServer, faultproxy.Shape{Latency: s.latency})
	s.links = append(s.links, p)
	return p
}

func (s *system) join(t testing.TB) *brokertest.Process {
	p := s.proxy(t)
	user := fmt.Sprintf("%s-user-%d", s.group, len(s.links))
	opts := &redis.Options{Addr: p.Addr()}
	if s.rdb.Do(context.Background(), "ACL", "SETUSER", user, "on", "nopass", "~*", "+@all").Err() == nil {
		opts.Username, opts.Password = user, "any"
	}
	src, err := NewSource(Config{Redis: opts, Group: s.group, Topics: s.topics, Lease: s.lease})
	s.must(t, err)
	src.link.rdb.AddHook(&s.hook)
	hold := faultproxy.Shape{Hold: true}
	usual := func() faultproxy.Shape { return faultproxy.Shape{Latency: s.latency} }
	return &brokertest.Process{
		Source: src,
		Kill: func() {
			p.Refuse(true)
			p.Reset()
			past, cancel := context.WithCancel(context.Background())
			cancel()
			_ = src.Close(past)
		},
		Freeze: func() { p.SetBoth(hold) },
		Thaw: func() {
			p.Set(faultproxy.ToServer, usual())
			p.Set(faultproxy.ToClient, faultproxy.Shape{})
		},
		Cut: func(d brokertest.Direction) {
			if d != brokertest.FromBroker {
				p.Set(faultproxy.ToServer, hold)
			}
			if d != brokertest.ToBroker {
				p.Set(faultproxy.ToClient, hold)
			}
		},
		Heal: func() { // what was held is lost, and not late
			p.Reset()
			p.Set(faultproxy.ToServer, usual())
			p.Set(faultproxy.ToClient, faultproxy.Shape{})
		},
		EndReceive: func() {
			s.must(t, s.rdb.Do(context.Background(), "ACL", "SETUSER", user, "-xreadgroup").Err())
		},
	}
}

func (s *system) setDown(down bool) {
	s.isDown = down
	for _, p := range s.links {
		if p.Refuse(down); down {
			p.Reset()
		}
	}
}

func (s *system) slow(_ testing.TB, d time.Duration) {
	s.latency = d
	for _, p := range s.links {
		p.Set(faultproxy.ToServer, faultproxy.Shape{Latency: d})
	}
}

func (s *system) produce(t testing.TB, _ int, ms ...broker.Outgoing) {
	t.Helper()
	pipe := s.rdb.Pipeline()
	for i := range ms {
		pipe.XAdd(context.Background(), &redis.XAddArgs{Stream: ms[i].Topic, Values: encode(&ms[i])})
	}
	_, err := pipe.Exec(context.Background())
	s.must(t, err)
}

func (s *system) pending(t testing.TB, topic string) []redis.XPendingExt {
	t.Helper()
	all := &redis.XPendingExtArgs{Stream: topic, Group: s.group, Start: "-", End: "+", Count: 1 << 20}
	ps, err := s.rdb.XPendingExt(context.Background(), all).Result()
	s.must(t, err)
	return ps
}

// behind returns the entries that were delivered, and those that were not.
func (s *system) behind(t testing.TB, topic string) (read map[string]bool, unread int64) {
	t.Helper()
	gs, err := s.rdb.XInfoGroups(context.Background(), topic).Result()
	s.must(t, err)
	for _, g := range gs {
		if g.Name != s.group {
			continue
		}
		es, err := s.rdb.XRange(context.Background(), topic, "-", g.LastDeliveredID).Result()
		s.must(t, err)
		read = make(map[string]bool)
		for _, e := range es {
			read[e.ID] = true
		}
		rest, err := s.rdb.XRange(context.Background(), topic, "("+g.LastDeliveredID, "+").Result()
		s.must(t, err)
		unread = int64(len(rest))
	}
	return read, unread
}

func (s *system) unsettled(t testing.TB) (n int64) {
	t.Helper()
	for _, topic := range s.topics {
		read, unread := s.behind(t, topic)
		for _, p := range s.pending(t, topic) {
			if read[p.ID] { // else it was trimmed
				n++
			}
		}
		n += unread
	}
	return n
}

func (s *system) publisher(t testing.TB) broker.Publisher {
	p, err := NewPublisher(PublisherConfig{Redis: &redis.Options{Addr: s.proxy(t).Addr()}, MaxMessageBytes: 1 << 20})
	s.must(t, err)
	return p
}

// redeliver gives the message back in the name of whoever has it.
func (s *system) redeliver(t testing.TB, m *broker.Message) {
	s.must(t, s.rdb.Do(context.Background(), "XCLAIM", m.Topic, s.group, "~", 0, m.ID(), "JUSTID").Err())
}

// forget makes all that is settled pending again, as on a server that was killed before it wrote that down.
func (s *system) forget(t testing.TB) {
	for _, topic := range s.topics {
		read, _ := s.behind(t, topic)
		for _, p := range s.pending(t, topic) {
			delete(read, p.ID)
		}
		args := []any{"XCLAIM", topic, s.group, "a process of before", 0}
		for id := range read {
			args = append(args, id)
		}
		if len(read) > 0 {
			s.must(t, s.rdb.Do(context.Background(), append(args, "IDLE", s.lease.Milliseconds()+1, "FORCE", "JUSTID")...).Err())
		}
	}
}

func (s *system) trim(t testing.TB, topic string, n int) {
	size, err := s.rdb.XLen(context.Background(), topic).Result()
	s.must(t, err)
	s.must(t, s.rdb.XTrimMaxLen(context.Background(), topic, size-int64(n)).Err())
}

func (s *system) recreate(t testing.TB, topic string) {
	s.must(t, s.rdb.Del(context.Background(), topic).Err())
	s.makeGroups(t)
}

// misconfigured makes a source of a key that is no stream.
func (s *system) misconfigured(t testing.TB) broker.Source {
	key := s.group + "-text"
	s.must(t, s.rdb.Set(context.Background(), key, "no stream", time.Minute).Err())
	src, err := NewSource(Config{Redis: &redis.Options{Addr: s.addr}, Group: s.group, Topics: []string{key}, Lease: s.lease})
	s.must(t, err)
	return src
}

// A hook counts what processes ask for, and lets settles fail before they are sent.
type hook struct{ fails, pulls, beats atomic.Int64 }

var errToldToFail = errors.New("told to fail")

func (h *hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script := any(nil)
		if cmd.Name() == "evalsha" {
			script = cmd.Args()[1]
		}
		switch script {
		case pullScript.Hash():
			h.pulls.Add(1)
		case extendScript.Hash():
			h.beats.Add(1)
		}
		if script == settleScript.Hash() && h.fails.Load() > 0 && h.fails.Add(-1) >= 0 {
			cmd.SetErr(errToldToFail)
			return errToldToFail
		}
		return next(ctx, cmd)
	}
}
