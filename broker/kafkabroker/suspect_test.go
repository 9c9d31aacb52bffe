package kafkabroker

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A mortal is a process whose handler ends it at one message.
type mortal struct {
	poison  string
	slow    string   // is not finished where others are beside it
	acked   []string // by any process
	letters []broker.Message
	deaths  int
	beside  int // how often a message of a careful process was not alone
}

// live runs one process until it dies or end says that all is done.
func (x *mortal) live(t *testing.T, ts *testSystem, careful bool, end func() bool) {
	t.Helper()
	l := ts.net.link()
	cfg := ts.config(l)
	cfg.CrashLimit = 3
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true, out: make(chan broker.Message, 100)}
	r.open(t)
	for {
		select {
		case m := <-r.out:
			if string(m.Value) == x.poison && m.Crashes == 0 {
				if careful {
					x.alone(r, m)
				}
				if !careful {
					eventually(t, "that it has begun is committed", func() bool { return ts.starts() == x.deaths+1 })
				}
				x.deaths++
				r.kill(l)
				return
			}
			x.handle(t, r, m, careful)
		case <-time.After(20 * time.Millisecond):
			if end() {
				r.close()
				return
			}
		}
	}
}

func (x *mortal) handle(t *testing.T, r *runner, m broker.Message, careful bool) {
	if careful && len(x.letters) == 0 {
		x.alone(r, m)
	} else if string(m.Value) == x.slow && !careful {
		return
	}
	if m.Crashes > 0 {
		x.letters = append(x.letters, m)
	} else {
		x.acked = append(x.acked, string(m.Value))
	}
	if err := r.s.Ack(m.Claim, []uint64{m.Token}); err != nil && !errors.Is(err, broker.ErrLost) {
		t.Errorf("ack: %v", err)
	}
}

// alone waits for whatever comes beside a message of the partition above whose offset processes ended. In another one they may
// not have come to begin: its messages may be beside each other.
func (x *mortal) alone(r *runner, m broker.Message) {
	if m.Partition != 0 {
		return
	}
	time.Sleep(5 * time.Millisecond)
	if len(r.out) > 0 {
		x.beside++
	}
}

// TestCrashLimit: a message ends each process that handles it. After three of them what was unfinished above the offset runs
// alone; what was alone when the fourth process ended is handed out with the number, and nothing else is.
func TestCrashLimit(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 2, 1)
	ts.lease = time.Second // four times it is waited for
	all := ts.put(t, ts.topics[0], 0, 20)
	x := &mortal{slow: all[0], poison: all[10]} // of partition 0
	for n := 0; n < 8 && len(x.letters) == 0; n++ {
		x.live(t, ts, n >= 3, func() bool { return len(x.letters) > 0 && ts.unsettled(t) == 0 })
	}
	if x.deaths != 4 || x.beside > 0 {
		t.Errorf("%d processes ended, want 4; %d times something was beside what should be alone", x.deaths, x.beside)
	}
	if len(x.letters) != 1 || string(x.letters[0].Value) != x.poison || x.letters[0].Crashes < 3 {
		t.Errorf("given up: %d messages, %+v", len(x.letters), x.letters)
	}
	for _, v := range all {
		if v != x.poison && !slices.Contains(x.acked, v) {
			t.Errorf("%s was not handled", v)
		}
	}
	if n := ts.unsettled(t); n > 0 {
		t.Errorf("%d messages are unsettled", n)
	}
}

// TestCrashLimitGoodbye: processes that end well are no crashes, and one that only loses its session is none either, for it
// lives.
func TestCrashLimitGoodbye(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	ts.lease = time.Second
	var p progress
	p.starts = 3
	all := ts.put(t, ts.topics[0], 0, 3)
	ts.commit(t, 0, p.encode(metadataLimit))
	for range 3 {
		cfg := ts.config(ts.net.link())
		cfg.CrashLimit = 3
		s, err := NewSource(cfg)
		if err != nil {
			t.Fatal(err)
		}
		r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true, out: make(chan broker.Message, 100)}
		r.open(t)
		for i := range 3 {
			m := <-r.out
			if string(m.Value) != all[0] || m.Crashes != 0 {
				t.Errorf("got %s, Crashes %d", m.Value, m.Crashes)
			}
			if i == 2 {
				break
			}
			ts.net.setDown(true)
			<-m.Claim.Ended()
			ts.net.setDown(false)
			_ = s.Ack(m.Claim, []uint64{m.Token}) // says ErrLost, and lets it come again
		}
		r.close()
	}
}
