package kafkabroker

import (
	"testing"
	"time"
)

func TestCommitWait(t *testing.T) {
	for name, tc := range map[string]struct {
		b        backlog
		size     int
		interval time.Duration
		want     time.Duration
	}{
		"nothing":               {want: time.Second},
		"few":                   {b: backlog{finished: 7}, want: time.Second},
		"enough":                {b: backlog{finished: 8}, want: commitGap},
		"many":                  {b: backlog{finished: 1e6}, size: 4096, want: commitGap},
		"large metadata":        {b: backlog{finished: 8}, size: commitBytes / 8, want: time.Second / 8},
		"very large metadata":   {b: backlog{finished: 8}, size: 10 * commitBytes, want: time.Second},
		"a claim ends":          {b: backlog{finished: 8, waited: true}, size: commitBytes, want: 0},
		"an interval below all": {b: backlog{finished: 8}, interval: time.Millisecond, want: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{CommitInterval: tc.interval}.withDefaults()
			if got := c.commitWait(tc.b, tc.size); got != tc.want {
				t.Errorf("it waits %v, want %v", got, tc.want)
			}
		})
	}
}

// TestCommitMessages: enough finished messages are committed without waiting for CommitInterval, which is longer than the test's patience; fewer are
// committed by Close.
func TestCommitMessages(t *testing.T) {
	ts := newTestSystem(t, 1, 1)
	cfg := ts.config(ts.net.link())
	cfg.CommitInterval, cfg.CommitMessages = 10*patience, 4
	r := startRunner(t, cfg)
	eventually(t, "the start is committed", func() bool { return ts.starts() == 1 })
	ts.put(t, ts.topics[0], 0, 4)
	eventually(t, "four are committed", func() bool { return ts.unsettled(t) == 0 })
	commits := ts.net.sent(keyOffsetCommit)
	want := ts.put(t, ts.topics[0], 4, 3)
	eventually(t, "three more came", func() bool { return r.has(want) })
	if n := ts.net.sent(keyOffsetCommit); n != commits {
		t.Errorf("%d commits were sent for three messages", n-commits)
	}
	r.close()
	eventually(t, "three more are committed", func() bool { return ts.unsettled(t) == 0 })
}
