package kafkabroker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMember: events go in, and what the group is told and what becomes of partitions comes out. A step is an event and what is
// to follow; the topics are a and b, whose ids are 1 and 2, and 3 is that of a made again.
func TestMember(t *testing.T) {
	type step struct{ event, want string }
	for name, steps := range map[string][]step{
		"joins, and is given partitions": {
			{"beat", "epoch 0 full owned[]"},
			{"answer 1", ""},
			{"beat", "epoch 1"},
			{"answer 2 1/0 1/1", "assigned a/0 a/1"},
			{"beat", "epoch 2 owned[1/0 1/1]"}, // at once
			{"answer 2", ""},
			{"beat", "epoch 2"},
			{"since", "a/0@2 a/1@2"},
		},
		"gives up what it has drained, and keeps the rest": {
			{"has 4 1/0 1/1", ""},
			{"answer 4 1/1", "revoking a/0"},
			{"beat", "epoch 4"},
			{"answer 4", ""}, // heartbeats go on meanwhile
			{"since", "a/0@4 a/1@4"},
			{"released a/0", ""},
			{"beat", "epoch 4 owned[1/1]"},
			{"answer 5", ""},
			{"since", "a/1@4"}, // its own epoch, and not the member's
		},
		"what went away and came back is another one": {
			{"has 4 1/0 1/1", ""},
			{"answer 4 1/1", "revoking a/0"},
			{"released a/0", ""},
			{"beat", "epoch 4 owned[1/1]"},
			{"answer 5 1/1", ""},
			{"answer 7 1/0 1/1", "assigned a/0"},
			{"since", "a/0@7 a/1@4"},
		},
		"what is wanted again while it drains is assigned when it is drained": {
			{"has 4 1/0 1/1", ""},
			{"answer 4 1/1", "revoking a/0"},
			{"answer 6 1/0 1/1", ""},
			{"since", "a/0@4 a/1@4"}, // the last commit of the one that drains
			{"released a/0", "assigned a/0"},
			{"since", "a/0@6 a/1@4"},
		},
		"what was never revoked is not released": {
			{"has 4 1/0", ""},
			{"released a/0", ""},
			{"since", "a/0@4"},
		},
		"an answer that was lost": {
			{"has 4 1/0 1/1", ""},
			{"beat", "epoch 4"},
			{"unanswered", ""},
			{"beat", "epoch 4 full owned[1/0 1/1]"}, // the group may be ahead: it is told what we have
			{"answer 5 1/0 1/1 2/0", "assigned b/0"},
			{"since", "a/0@4 a/1@4 b/0@5"},
		},
		"an answer to what we had before": {
			{"has 4 1/0 1/1", ""},
			{"answer 4 1/1", "revoking a/0"},
			{"beat", "epoch 4"},
			{"released a/0", ""}, // while the beat is under way
			{"late answer 4", ""},
			{"beat", "epoch 4 owned[1/1]"},
		},
		"the join that was lost": {
			{"beat", "epoch 0 full owned[]"},
			{"unanswered", ""},
			{"beat", "epoch 0 full owned[]"},
		},
		"fenced": {
			{"has 4 1/0 1/1", ""},
			{"lose", "lost a/0 a/1"},
			{"since", ""},
			{"beat", "epoch 0 full owned[]"},
			{"answer 4 1/0", "assigned a/0"},
		},
		"a topic that nobody has told us of": {
			{"answer 2 9/0", "unnamed"},
			{"beat", "epoch 2"},
			{"named 9 c", "assigned c/0"},
			{"beat", "epoch 2 owned[9/0]"},
			{"since", "c/0@2"},
		},
		"a topic that was made again": {
			{"has 4 1/0", ""},
			{"answer 5 3/0", "unnamed revoking a/0"},
			{"named 3 a", "lost a/0, assigned a/0"},
			{"released a/0", ""},
			{"since", "a/0@5"},
			{"beat", "epoch 5 owned[3/0]"},
		},
		"a topic that was made again, and is another's": {
			{"has 4 1/0 2/0", ""},
			{"answer 4 2/0", "revoking a/0"},
			{"named 3 a", "lost a/0"},
			{"beat", "epoch 4 owned[2/0]"}, // without a last commit
			{"released a/0", ""},
		},
		"a topic that was made again, as was known, and is another's": {
			{"has 4 1/0 1/1", ""},
			{"named 3 a", ""},
			{"answer 4 3/1", "lost a/0"},
			{"beat", "epoch 4 owned[3/1]"},
		},
		"a topic that was made again, as was known": {
			{"has 4 1/0", ""},
			{"named 3 a", ""},
			{"answer 5 3/0", ""}, // the claim begins anew by itself
			{"since", "a/0@5"},
			{"beat", "epoch 5 owned[3/0]"},
		},
		"what is taken away before its topic had a name": {
			{"has 4 1/0", ""},
			{"answer 5 1/0 9/0", "unnamed"},
			{"beat", "epoch 5"},
			{"answer 5 1/0", ""},
			{"beat", "epoch 5 owned[1/0]"}, // the group waits for that
			{"answer 6 1/0", ""},
			{"beat", "epoch 6"},
		},
		"other topics to subscribe to": {
			{"has 4 1/0", ""},
			{"topics a b", ""},
			{"beat", "epoch 4 full owned[1/0]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newMemberTest()
			for i, s := range steps {
				if got := x.do(t, s.event); got != s.want {
					t.Fatalf("step %d, %s: got %q, want %q", i, s.event, got, s.want)
				}
			}
		})
	}
}

type memberTest struct {
	m    *member
	sent sentBeat
	now  time.Time
}

func newMemberTest() *memberTest {
	x := &memberTest{m: newMember("me", "", time.Second), now: time.Unix(1000, 0)}
	x.m.enlist(enlistment{topics: []string{"a"}}, x.now)
	x.m.named(map[topicID]string{{1}: "a", {2}: "b"})
	x.sent = x.m.beat()
	return x
}

func (x *memberTest) do(t *testing.T, event string) string {
	words := strings.Fields(event)
	switch words[0] {
	case "beat":
		x.sent = x.m.beat()
		said := fmt.Sprintf("epoch %d", x.sent.epoch)
		if x.sent.full != nil {
			said += " full"
		}
		if x.sent.owned != nil {
			var ps []string
			for _, p := range x.sent.owned {
				ps = append(ps, fmt.Sprintf("%d/%d", p.id[0], p.no))
			}
			said += fmt.Sprintf(" owned%v", ps)
		}
		return said
	case "late":
		return x.answer(t, words[2:])
	case "answer":
		x.sent = x.m.beat()
		return x.answer(t, words[1:])
	case "has":
		x.answer(t, words[1:])
		x.sent = x.m.beat()
		x.answer(t, words[1:2])
		return ""
	case "unanswered":
		x.m.unanswered(x.now)
		return ""
	case "lose":
		return "lost" + names(x.m.lose(x.now, "me"))
	case "released":
		return said(x.m.released(partitions(t, words[1:]), x.now))
	case "named":
		var id topicID
		scan(t, words[1], &id[0])
		return said(x.m.named(map[topicID]string{id: words[2]}))
	case "topics":
		x.m.enlist(enlistment{topics: words[1:]}, x.now)
		return ""
	case "since":
		var all []string
		for p, t := range x.m.has() {
			all = append(all, fmt.Sprintf("%s/%d@%d", p.topic, p.no, t.since))
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	t.Fatalf("what is %s?", event)
	return ""
}

func (x *memberTest) answer(t *testing.T, words []string) string {
	a := beatAnswer{interval: 5 * time.Second, told: len(words) > 1}
	scan(t, words[0], &a.epoch)
	for _, w := range words[1:] {
		var p logPart
		id, no, _ := strings.Cut(w, "/")
		scan(t, id, &p.id[0])
		scan(t, no, &p.no)
		a.assigned = append(a.assigned, p)
	}
	changes, unnamed := x.m.answered(x.sent, a, x.now)
	if unnamed {
		return strings.TrimSpace("unnamed " + said(changes))
	}
	return said(changes)
}

func said(changes []change) string {
	var all []string
	for _, c := range changes {
		all = append(all, map[changeKind]string{assigned: "assigned", revoking: "revoking", lost: "lost"}[c.kind]+names(c.parts))
	}
	return strings.Join(all, ", ")
}

func names(ps []partitionID) (text string) {
	for _, p := range ps {
		text += fmt.Sprintf(" %s/%d", p.topic, p.no)
	}
	return text
}

func partitions(t *testing.T, words []string) (ps []partitionID) {
	for _, w := range words {
		p := partitionID{}
		name, no, _ := strings.Cut(w, "/")
		p.topic = name
		scan(t, no, &p.no)
		ps = append(ps, p)
	}
	return ps
}

func scan(t *testing.T, text string, v any) {
	t.Helper()
	if _, err := fmt.Sscan(text, v); err != nil {
		t.Fatal(err)
	}
}

// TestMemberPace: heartbeats are a second apart at most, whatever the broker asks, a quarter of one for five seconds after a
// change, and at once where there is something to tell.
func TestMemberPace(t *testing.T) {
	for name, tc := range map[string]struct {
		normal time.Duration
		asked  time.Duration
		after  time.Duration // of the last change
		want   time.Duration
	}{
		"after a change":                  {3 * time.Second, 5 * time.Second, time.Second, 250 * time.Millisecond},
		"later":                           {3 * time.Second, 5 * time.Second, 6 * time.Second, time.Second},
		"the broker wants more":           {3 * time.Second, 300 * time.Millisecond, 6 * time.Second, 300 * time.Millisecond},
		"who runs it wants more":          {100 * time.Millisecond, 5 * time.Second, 6 * time.Second, 100 * time.Millisecond},
		"who runs it wants more at once":  {100 * time.Millisecond, 5 * time.Second, time.Second, 100 * time.Millisecond},
		"the broker asks for nothing yet": {3 * time.Second, 0, 6 * time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			m, now := newMember("me", "", tc.normal), time.Unix(1000, 0)
			m.answered(m.beat(), beatAnswer{epoch: 1, interval: tc.asked}, now)
			now = now.Add(tc.after)
			m.answered(m.beat(), beatAnswer{epoch: 1, interval: tc.asked}, now)
			if got := m.due.Sub(now); got != tc.want {
				t.Errorf("the next one is due after %v, want %v", got, tc.want)
			}
			m.named(map[topicID]string{{1}: "a"})
			m.answered(m.beat(), beatAnswer{epoch: 2, interval: tc.asked, told: true, assigned: []logPart{{topicID{1}, 0}}}, now)
			if !m.due.Equal(now) {
				t.Errorf("what it has is told %v later", m.due.Sub(now))
			}
			m.answered(m.beat(), beatAnswer{epoch: 2, interval: tc.asked, told: true}, now)
			m.released([]partitionID{{"a", 0}}, now)
			if !m.due.Equal(now) {
				t.Errorf("what it gave up is told %v later", m.due.Sub(now))
			}
		})
	}
}
