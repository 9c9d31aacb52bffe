package natsbroker

import (
	"testing"
	"time"
)

// What silence means, one look after the other. Not through the exported API: a table of what else takes minutes of waiting.
func TestQuiet(t *testing.T) {
	const patience, ackWait = int64(10 * time.Second), int64(30 * time.Second)
	type look struct {
		at   int64 // seconds
		s    signs
		want silenceKind
	}
	heard := func(n uint64) signs { return signs{heard: n, asked: true, contact: 1 << 60} }
	aside := signs{heard: 1, asked: true, standsBy: true, contact: 1 << 60}
	for name, looks := range map[string][]look{
		"it is heard": {{0, heard(1), notSilent}, {9, heard(2), notSilent}, {19, heard(3), notSilent}},
		"no heartbeat, told once": {{0, heard(1), notSilent}, {10, heard(1), notSilent}, {11, heard(1), pullSilent},
			{20, heard(1), notSilent}, {22, heard(1), pullSilent}},
		"it is heard again": {{11, heard(0), pullSilent}, {12, heard(1), silenceOver}, {13, heard(1), notSilent},
			{20, heard(2), notSilent}},
		"nothing is asked for any more": {{11, heard(0), pullSilent}, {12, signs{contact: 1 << 60}, silenceOver},
			{13, signs{contact: 1 << 60}, notSilent}},
		"another is pinned meanwhile": {{11, heard(0), pullSilent},
			{12, signs{asked: true, standsBy: true, contact: 1 << 60}, silenceOver}},
		"nothing was asked for": {{0, signs{heard: 1, contact: 1 << 60}, notSilent},
			{99, signs{heard: 1, contact: 1 << 60}, notSilent}},
		"it is asked anew": {{0, heard(1), notSilent}, {11, signs{heard: 1, asked: true, idle: true}, notSilent},
			{21, heard(1), notSilent}, {22, heard(1), pullSilent}},
		"another is pinned": {{0, aside, notSilent}, {11, aside, asideSilent}, {12, aside, notSilent}},
		"nor are PINGs answered": {{50, signs{heard: 1, asked: true, contact: 0}, noAnswer},
			{51, signs{heard: 2, asked: true, contact: int64(50 * time.Second)}, notSilent}},
	} {
		t.Run(name, func(t *testing.T) {
			var q quiet
			for i, l := range looks {
				l.s.now, l.s.ackWait = l.at*int64(time.Second), ackWait
				if got, _ := q.look(l.s, patience); got != l.want {
					t.Errorf("look %d, at %d s: %d, want %d", i+1, l.at, got, l.want)
				}
			}
		})
	}
}

// A socket that gives nothing, though PINGs were sent, is half open; one that trickles is not.
func TestHalfOpen(t *testing.T) {
	const patience, ackWait = int64(10), int64(30)
	for name, c := range map[string]struct {
		now, contact, read int64
		want               bool
	}{
		"bytes come":         {100, 0, 95, false},
		"PINGs are answered": {100, 85, 0, false},
		"nothing comes":      {100, 0, 0, true},
	} {
		var q quiet
		q.read(1, c.read)
		if got := q.halfOpen(signs{now: c.now, contact: c.contact, ackWait: ackWait}, patience); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if c.want && q.halfOpen(signs{now: c.now + 1, ackWait: ackWait}, patience) {
			t.Errorf("%s: a connection that was just made anew is given up", name)
		}
	}
}
