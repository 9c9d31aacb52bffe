package membroker

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/longshoremq/longshore/broker"
)

// TestLeases holds the progress of a stream against a simple model: a map by offset, under random deliveries, settles,
// give-backs, extensions, passing time and forgotten settles.
func TestLeases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Leased: true, Lease: time.Second}.withDefaults()
		l := &commitLog{partition: -1, first: 1, end: 1}
		m := &leaseModel{p: newLeases(1), l: l, cfg: cfg, now: time.Unix(1000, 0), due: map[int64]time.Time{},
			settled: map[int64]time.Time{}}
		t.Repeat(map[string]func(*rapid.T){
			"produce": m.produce, "deliver": m.deliver, "again": m.again, "finish": m.finish, "give back": m.giveBack,
			"extend": m.extend, "wait": m.wait, "forget": m.forget, "": m.check,
		})
	})
}

type leaseModel struct {
	p   leases
	l   *commitLog
	cfg Config
	now time.Time
	// due: what was delivered and is not settled, and when it comes again.
	due     map[int64]time.Time
	settled map[int64]time.Time
}

func (m *leaseModel) produce(t *rapid.T) {
	n := rapid.IntRange(1, 100).Draw(t, "n")
	m.l.append("topic", make([]broker.Message, n), int64(n))
}

func (m *leaseModel) deliver(t *rapid.T) {
	n := min(int64(rapid.IntRange(1, 50).Draw(t, "n")), m.l.end-m.p.next)
	if n == 0 {
		t.Skip("nothing to deliver")
	}
	until := m.now.Add(m.cfg.Lease)
	for o := m.p.next; o < m.p.next+n; o++ {
		m.due[o] = until
	}
	m.p.deliver(1, n, until.UnixNano())
}

func (m *leaseModel) again(t *rapid.T) {
	limit := rapid.IntRange(1, 20).Draw(t, "limit")
	var want []int64
	for o, due := range m.due {
		if !due.After(m.now) {
			want = append(want, o)
		}
	}
	slices.Sort(want)
	want = want[:min(limit, len(want))]
	spans, _ := m.p.again(m.l, &m.cfg, 2, limit, m.now)
	var got []int64
	for _, sp := range spans {
		got = append(got, sp.from)
		m.due[sp.from] = m.now.Add(m.cfg.Lease)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("delivered again %v, want %v", got, want)
	}
}

func (m *leaseModel) any(t *rapid.T) int64 {
	if m.p.next == 1 {
		t.Skip("nothing was delivered")
	}
	return rapid.Int64Range(1, m.p.next-1).Draw(t, "offset")
}

func (m *leaseModel) finish(t *rapid.T) {
	o := m.any(t)
	_, open := m.due[o]
	if got := m.p.finish(o, m.now.UnixNano()); got != open {
		t.Fatalf("finish of %d said %v, want %v", o, got, open)
	}
	if open {
		m.settled[o] = m.now
	}
	delete(m.due, o)
}

func (m *leaseModel) giveBack(t *rapid.T) {
	o := m.any(t)
	due := m.now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "delay")) * time.Millisecond)
	m.p.giveBack(o, m.now.UnixNano(), due.UnixNano(), 1)
	if _, open := m.due[o]; open {
		m.due[o] = due
	}
}

func (m *leaseModel) extend(t *rapid.T) {
	until := m.now.Add(m.cfg.Lease)
	has := rapid.SliceOfN(rapid.Int64Range(0, m.p.next+2), 0, 50).Draw(t, "has")
	for _, o := range has {
		if due, open := m.due[o]; open && m.p.at(o).holder == 1 && due.After(m.now) {
			m.due[o] = until
		}
	}
	m.p.extend(1, has, m.now.UnixNano(), until.UnixNano())
}

func (m *leaseModel) wait(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 1500).Draw(t, "ms")) * time.Millisecond)
}

func (m *leaseModel) forget(t *rapid.T) {
	since := m.now.Add(-time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
	want := 0
	for o, at := range m.settled {
		if !at.Before(since) {
			want++
			m.due[o] = time.Unix(0, 0)
			delete(m.settled, o)
		}
	}
	if got := m.p.forget(since.UnixNano()); got != want {
		t.Fatalf("forgot %d settles, want %d", got, want)
	}
	if want > 0 {
		clear(m.settled) // the journal begins anew
	}
}

func (m *leaseModel) check(t *rapid.T) {
	floor := m.p.next
	for o := range m.due {
		floor = min(floor, o)
	}
	if m.p.floor != floor {
		t.Fatalf("the floor is %d, want %d", m.p.floor, floor)
	}
	if open := m.p.next - m.p.floor - m.p.doneAbove; open != int64(len(m.due)) {
		t.Fatalf("%d are unsettled, want %d", open, len(m.due))
	}
}
