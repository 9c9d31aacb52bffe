package kafkabroker

import (
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// TestSession: a session counts from when we asked what was answered, and only forwards.
func TestSession(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) time.Time { return began.Add(d) }
	s := session{length: 10 * time.Second}
	if s.over(began) || !s.lapsed(began) {
		t.Errorf("before the first answer: over %t, lapsed %t, want false and true", s.over(began), s.lapsed(began))
	}
	s.answered(at(2 * time.Second))
	s.answered(at(time.Second)) // came later, was asked earlier
	if want := at(12 * time.Second); !s.ends().Equal(want) {
		t.Errorf("ends at %v, want %v", s.ends(), want)
	}
	s.failed = errors.New("no answer")
	s.heard(at(3 * time.Second)) // an answer to a join is none to the heartbeat beside it
	if s.failed == nil || !s.ends().Equal(at(13*time.Second)) {
		t.Errorf("heard: failed %v, ends at %v", s.failed, s.ends())
	}
	s.answered(at(4 * time.Second))
	if s.failed != nil {
		t.Errorf("after an answer: failed %v", s.failed)
	}
	for _, c := range []struct {
		at               time.Duration // since the answer was asked for
		over             bool
		request, waiting time.Duration
	}{
		{at: 0, request: time.Second, waiting: time.Second},
		{at: 0, request: time.Minute, waiting: 5 * time.Second},
		{at: 7 * time.Second, request: time.Minute, waiting: 3 * time.Second},
		{at: 10*time.Second - 1, request: time.Minute, waiting: 1},
		{at: 10 * time.Second, over: true, request: time.Minute, waiting: 5 * time.Second},
		{at: time.Hour, over: true, request: time.Second, waiting: time.Second},
	} {
		now := at(4*time.Second + c.at)
		if s.over(now) != c.over || s.lapsed(now) != c.over {
			t.Errorf("after %v: over %t, lapsed %t, want %t", c.at, s.over(now), s.lapsed(now), c.over)
		}
		if d := s.patience(now, c.request); d != c.waiting {
			t.Errorf("after %v a request of %v waits %v, want %v", c.at, c.request, d, c.waiting)
		}
		unheard := s
		unheard.failed = errors.New("no answer")
		if s.silent(now) || unheard.silent(now) != c.over {
			t.Errorf("after %v: silent %t though nothing was asked, and %t without an answer", c.at, s.silent(now), unheard.silent(now))
		}
	}
}

// restedMember is a membership whose session is over until the group answers.
type restedMember struct {
	toldReleases
	over bool
}

func (m *restedMember) lapsed(time.Time) bool { return m.over }

// TestLapsedBySession: while the session is over nothing that is out is certainly ours. What is given back then comes again, once
// the group has answered that it is.
func TestLapsedBySession(t *testing.T) {
	s, _, p := bareSource(t)
	m := &restedMember{}
	s.m = m
	tok, ok := p.tr.offer(0, 10)
	if !ok {
		t.Fatal("the tracker does not hand out its first message")
	}
	if s.Lapsed(p.claim, tok) {
		t.Error("lapsed within the session")
	}
	if m.over = true; !s.Lapsed(p.claim, tok) {
		t.Error("not lapsed, and the session is over")
	}
	foreign, _ := broker.NewClaim("orders", 0, nil)
	if s.Lapsed(p.claim, tok+1) || s.Lapsed(foreign, tok) {
		t.Error("what is not out, or is of another source, has lapsed")
	}
	if err := s.Nack(p.claim, []broker.Back{{Token: tok}}); err != nil {
		t.Errorf("giving back what has lapsed: %v", err)
	}
	if s.Lapsed(p.claim, tok) {
		t.Error("what was given back has lapsed")
	}
	if again, ok := p.tr.offer(0, 10); !ok || again == tok {
		t.Errorf("what was given back is offered again: %t, by a token of its own: %t", ok, again != tok)
	}
}
