package kafkabroker

import (
	"testing"
)

// TestStaticInterrupted: a static member ends, well or killed, while it drains what a second member is to have, and comes back
// within its session. The group has its place and gives it the rest of its partitions without a new generation; what it was to
// give up must be somebody's all the same.
func TestStaticInterrupted(t *testing.T) {
	t.Parallel()
	for _, balancer := range []string{"sticky", "range"} {
		for how, end := range map[string]func(*testing.T, *testSystem, *runner, *link){
			"closed": func(t *testing.T, ts *testSystem, r *runner, _ *link) {
				r.close()
				if r.s.m.(*classic).owes() { // else it has released and joined again before it closed
					left(t, ts, 1)
				}
			},
			"killed": func(t *testing.T, ts *testSystem, r *runner, l *link) { r.kill(l); left(t, ts, 0) },
		} {
			t.Run(balancer+"/"+how, func(t *testing.T) {
				t.Parallel()
				onEach(t, 4, func(t *testing.T, ts *testSystem) {
					ts.balancer = balancer
					testStaticInterrupted(t, ts, end)
				})
			})
		}
	}
}

// left says whether a goodbye was said in place of a member: who closes says it, and nobody has to wait.
func left(t *testing.T, ts *testSystem, want int64) {
	t.Helper()
	if n := ts.net.sent(keyLeaveGroup); n != want {
		t.Errorf("the group was left %d times, want %d", n, want)
	}
}

func testStaticInterrupted(t *testing.T, ts *testSystem, end func(*testing.T, *testSystem, *runner, *link)) {
	static := func(l *link) Config {
		cfg := ts.config(l)
		cfg.InstanceID, cfg.SessionTimeout, cfg.RevokeWait, cfg.RebalanceTimeout = "one", 3*patience, 3*patience, 4*patience
		return cfg
	}
	want := ts.put(t, ts.topics[0], 0, 8)
	l := ts.net.link()
	s, err := NewSource(static(l))
	if err != nil {
		t.Fatal(err)
	}
	first := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true}
	first.open(t)
	eventually(t, "all are in its handlers", func() bool { return first.has(want) })
	cfg := ts.config(ts.net.link())
	cfg.SessionTimeout, cfg.RebalanceTimeout = patience, 4*patience
	opened := make(chan *runner, 1)
	go func() { opened <- startRunner(t, cfg) }()
	eventually(t, "something is revoked", func() bool {
		first.s.h.mu.Lock()
		defer first.s.h.mu.Unlock()
		for _, p := range first.s.h.roster.parts {
			if p.stage == draining {
				return true
			}
		}
		return false
	})
	end(t, ts, first, l)
	again := startRunner(t, static(ts.net.link()))
	second := <-opened
	want = append(want, ts.put(t, ts.topics[0], 8, 8)...)
	eventually(t, "all came", func() bool {
		for _, v := range want {
			if again.seen()[v]+second.seen()[v] == 0 {
				return false
			}
		}
		return true
	})
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}
