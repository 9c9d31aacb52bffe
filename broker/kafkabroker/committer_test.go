package kafkabroker

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
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

// TestCommitMessages: enough finished messages are committed without waiting for CommitInterval, which is longer than the test's
// patience; fewer are committed by Close.
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

func TestDoubt(t *testing.T) {
	const least, at = 10 * time.Second, time.Second
	zero := time.Unix(1_000_000, 0)
	for name, tc := range map[string]struct {
		unanswered, answered []time.Duration // when, in this order
		want                 time.Duration   // when it is over; 0: never
	}{
		"all answered":  {answered: []time.Duration{at, 2 * at}},
		"none answered": {unanswered: []time.Duration{at, 2 * at}},
		"one lost":      {unanswered: []time.Duration{at}, answered: []time.Duration{2 * at, 5 * at}, want: 12 * at},
		"as long as the silence": {unanswered: []time.Duration{at, 8 * at, 15 * at}, answered: []time.Duration{31 * at},
			want: 61 * at},
		"no longer than TCP tries": {unanswered: []time.Duration{at}, answered: []time.Duration{time.Hour},
			want: time.Hour + doubtLimit},
	} {
		t.Run(name, func(t *testing.T) {
			var d doubt
			for _, at := range tc.unanswered {
				d.unanswered(zero.Add(at))
			}
			for _, at := range tc.answered {
				d.answered(zero.Add(at), least)
			}
			if tc.want == 0 {
				if d.over(zero.Add(24 * time.Hour)) {
					t.Error("it is over, and there was none, or there still is")
				}
				return
			}
			if d.over(zero.Add(tc.want - 1)) {
				t.Error("it is over too early")
			}
			if !d.over(zero.Add(tc.want)) || d.over(zero.Add(tc.want+time.Hour)) {
				t.Errorf("it is not over, once, at %v", tc.want)
			}
		})
	}
}

// TestLateCommit: a commit that got no answer arrives behind later ones, when nothing more is to be committed. What the group
// went back by is committed again.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	cfg := ts.config(ts.net.link())
	cfg.RequestTimeout, cfg.SessionTimeout = 5*time.Second, patience // who joined anew has another name
	r := startRunner(t, cfg)
	want := ts.put(t, ts.topics[0], 0, 3)
	eventually(t, "three are committed", func() bool { return r.has(want) && ts.unsettled(t) == 0 })
	held := make(chan *kmsg.OffsetCommitRequest, 1)
	ts.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		held <- req.(*kmsg.OffsetCommitRequest)
		return nil, errors.New("the connection is gone"), true
	})
	ts.put(t, ts.topics[0], 3, 1)
	late := <-held
	ts.put(t, ts.topics[0], 4, 2)
	eventually(t, "six are committed", func() bool { return ts.unsettled(t) == 0 })
	late.Topics[0].TopicID = topicIDOf(t, ts.admin, ts.topics[0])
	ask(t, ts.admin, late, func(r *kmsg.OffsetCommitResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
	if n := ts.fakeProgress(ts.topics[0])[0].committed; n >= 6 {
		t.Fatalf("%d are committed after the late one: the test is wrong", n)
	}
	eventually(t, "six are committed again", func() bool { return ts.fakeProgress(ts.topics[0])[0].committed == 6 })
}
