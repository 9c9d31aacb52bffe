package natsbroker

import "testing"

// A pause gives back what waits, and is over before the naks have come: a request that is with the server still brings what
// stands behind that. It is not handed out before what was given back is here again.
func TestPausedForAMomentInOurTurn(t *testing.T) {
	t.Parallel()
	for name, halt := range map[string]func(u *playedTurn){
		"nothing was out": func(u *playedTurn) { u.s.held.pause(true) },
		"what was out is settled while it is paused": func(u *playedTurn) {
			out := u.receive(1)
			u.s.held.pause(true)
			u.ack(out...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := playTurn(t)
			u.arrives(1, 1, 1)
			u.looks(1, 1)
			u.arrives(1, 2, 2)
			halt(u)
			if u.b.ses.ready.n > 0 {
				t.Fatal("what waits was not given back")
			}
			u.s.held.pause(false)
			u.arrives(1, 3, 3)
			if ms := u.receive(1); len(ms) > 0 {
				t.Fatalf("message %d is handed out before those that were given back", ms[0].Offset)
			}
			unsettled := len(u.s.outbox.settles.naks) + 1
			u.looks(unsettled, 3)
			last := u.comeAgain(4)
			u.looks(unsettled, last)
			ms := u.receive(4)
			if len(ms) != unsettled {
				t.Fatalf("%d messages are handed out, want %d", len(ms), unsettled)
			}
			for i, m := range ms {
				if want := int64(3 - (len(ms) - 1) + i); m.Offset != want {
					t.Errorf("message %d is handed out, want %d", m.Offset, want)
				}
			}
		})
	}
}

// The same of what comes while it is paused, and goes back by itself.
func TestCameWhilePausedInOurTurn(t *testing.T) {
	t.Parallel()
	u := playTurn(t)
	u.arrives(1, 1, 1)
	u.looks(1, 1)
	u.ack(u.receive(1)...)
	u.s.held.pause(true)
	u.arrives(1, 2, 2)
	u.s.held.pause(false)
	u.arrives(1, 3, 3)
	if ms := u.receive(1); len(ms) > 0 {
		t.Fatalf("message %d is handed out before message 2, which was given back", ms[0].Offset)
	}
}
