package natsbroker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// What others settled, by the server's count.
func TestBalance(t *testing.T) {
	var b balance
	for i, l := range []struct {
		firsts, done, maybes, pending, explained int
		want                                     fall
		fell                                     int
	}{
		{2, 0, 0, 5, 1, fallFirst, 0}, // the first look: what was settled before is not in the count
		{2, 0, 0, 5, 0, fallNone, 0},
		{4, 0, 0, 7, 0, fallNone, 0}, // two that are new
		{4, 1, 0, 6, 0, fallNone, 0}, // one that was acked here
		{5, 1, 0, 6, 0, fallSome, 1}, // one that is new, and one that another has settled
		{5, 1, 0, 6, 0, fallNone, 1},
		{5, 1, 0, 4, 1, fallSome, 2}, // two more, and of one it is known which
		{5, 1, 0, 4, 2, fallNone, 0}, // and of the others
		{5, 1, 0, 4, 1, fallNone, 0}, // removed after it was counted
		{5, 1, 0, 3, 0, fallSome, 1},
		{5, 2, 1, 2, 0, fallSome, 1}, // it was not the one that was acked; another one may be settled meanwhile, and this was it
		{5, 3, 1, 2, 0, fallSome, 0}, // now it was
		{5, 4, 1, 1, 0, fallNone, 0},
		{5, 4, 0, 3, 0, fallNone, 0}, // a cluster is to deliver two,
		{7, 4, 0, 3, 0, fallNone, 0}, // and they come
		{7, 4, 0, 2, 0, fallSome, 1},
		{7, 4, 0, 4, 0, fallNone, 1}, // it is to deliver two again, and another one is settled
		{9, 4, 0, 3, 0, fallSome, 2},
	} {
		b.firsts, b.done, b.maybes = l.firsts, l.done, l.maybes
		if got := b.look(l.pending, l.explained); got != l.want || b.fell != l.fell {
			t.Errorf("look %d: %d, fell by %d, want %d, %d", i+1, got, b.fell, l.want, l.fell)
		}
	}
	if b.hidden(3) != 2 || b.hidden(1) != 1 || b.hidden(0) != 0 || b.hidden(3) != 0 {
		t.Error("what is not here is hidden")
	}
}

// What others may have settled goes back when nothing else is missing, and not for each of their acks, nor for own ones of what
// is in doubt.
func TestDoubtGoesBackOnce(t *testing.T) {
	u, out := playDoubt(t)
	u.looks(4, 8) // another one settled 5
	u.ack(out[1])
	u.looks(3, 8)
	if last := u.comeAgain(9); last != 8 {
		t.Fatalf("%d were given back while one is out that may be it, want none", last-8)
	}
	u.ack(out[2])
	u.looks(2, 8)
	if last := u.comeAgainWithout(5, 9); last != 9 || u.b.ses.slots.used != 1 {
		t.Fatalf("%d came again when all seemed to be here, want the one that is not settled", last-8)
	}
	u.looks(2, 9)
	u.arrives(3, 1, 10)
	u.looks(2, 10)
	if last := u.comeAgain(11); last != 10 {
		t.Errorf("%d were given back when it was known, want none", last-10)
	}
	if ms := u.receive(3); len(ms) != 2 || ms[0].Offset != 1 {
		t.Errorf("%d messages are handed out, want 2", len(ms))
	}
}

// What another one settled is acked here, too: then nothing is in doubt any more, and nothing goes back.
func TestDoubtIsOverByOwnAcks(t *testing.T) {
	u, out := playDoubt(t)
	u.looks(4, 8) // another one settled 3
	u.ack(out[1])
	u.looks(3, 8)
	u.ack(out[2])
	u.looks(3, 8)
	u.arrives(3, 1, 9)
	u.looks(3, 9)
	if last := u.comeAgain(10); last != 9 {
		t.Errorf("%d were given back, want none", last-9)
	}
	if ms := u.receive(4); len(ms) != 3 || ms[0].Offset != 1 {
		t.Errorf("%d messages are handed out, want 3", len(ms))
	}
}

// One that another settled runs here for long, and one that stands before others is missing. It is asked for, and then the others
// are handed out.
func TestMissingBesideALongHandler(t *testing.T) {
	u, _ := playDoubt(t)
	u.looks(3, 8) // another one settled 2 and 3, and 1 is missing
	if now := u.s.held.stock.clock.now(); u.b.ses.pin.arrived > now-int64(time.Second) {
		u.b.ses.pin.arrived = now - int64(time.Minute)
	}
	u.looks(3, 8)
	if u.b.ses.pin.want == 0 {
		t.Fatal("what is missing is not asked for")
	}
	u.arrives(3, 1, 9)
	u.looks(3, 9)
	if ms := u.receive(4); len(ms) != 3 || ms[0].Offset != 1 {
		t.Errorf("%d messages are handed out, want 3", len(ms))
	}
}

// playDoubt is a turn in which 1 went back, 2 and 3 are out, as the server knows for the third time, and 4 and 5 wait.
func playDoubt(t *testing.T) (u *playedTurn, out []broker.Message) {
	t.Helper()
	u = playTurn(t)
	u.arrives(2, 1, 1)
	u.arrives(2, 2, 2)
	u.arrives(2, 3, 3)
	u.looks(3, 3)
	u.comeAgain(4)
	u.looks(3, 6)
	out = u.receive(3)
	u.arrives(1, 4, 7)
	u.arrives(1, 5, 8)
	u.misses(out[0])
	u.looks(5, 8)
	return u, out
}

// A delivery is lost, and before it is taken for that another one settles what waits here. That is seen, and not taken for what
// is missing.
func TestLateAckBesideALostDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := playTurn(t)
		u.arrives(1, 2, 1)
		u.arrives(1, 3, 2)
		u.looks(3, 2) // 1 is missing
		u.looks(2, 3) // it was delivered, and did not come; and another one settled 2
		time.Sleep(DefaultAckWait / 2)
		u.looks(2, 3)
		if ms := u.receive(2); len(ms) > 0 {
			t.Errorf("%d is handed out, and 1 is missing", ms[0].Offset)
		}
	})
}

// Others settle, one after the other, what waits here, and nothing can be missing. It goes back once, so that it need not run
// twice, and not again soon.
func TestLateAcksOfWhatWaits(t *testing.T) {
	u := playTurn(t)
	u.arrives(2, 1, 1)
	u.looks(1, 1)
	last := u.comeAgain(2)
	for i, again := range []uint64{4, 0} {
		for seq := uint64(2); seq < 6; seq++ {
			last++
			u.arrives(1, seq+10*uint64(i), last)
		}
		u.looks(5, last)
		u.misses(u.receive(1)...)
		u.looks(5, last)
		last++
		u.arrives(3+i, 1, last)
		u.looks(4, last) // the second of these four was settled
		before := last
		if last = u.comeAgainWithout(3, last+1); last-before != again {
			t.Fatalf("round %d: %d came again, want %d", i, last-before, again)
		}
		u.looks(4, last)
		if u.b.ses.pin.gathering {
			t.Fatalf("round %d: it does not go on", i)
		}
		ms := u.receive(5)
		if len(ms) < 4 || ms[0].Offset != 1 {
			t.Fatalf("round %d: %d are handed out", i, len(ms))
		}
		u.ack(ms[1:]...)
		u.looks(1, last)
		u.misses(ms[0])
		last++
		u.arrives(10, 1, last)
		u.looks(1, last)
	}
}

// A limit removes what is here while something else is missing. That is known, and nothing goes back for it.
func TestRemovedWhileGathering(t *testing.T) {
	u := playTurn(t)
	for seq := uint64(1); seq < 7; seq++ {
		u.arrives(1, seq, seq)
	}
	u.looks(6, 6)
	u.misses(u.receive(6)[5]) // 1 to 5 are out
	for seq := uint64(7); seq < 10; seq++ {
		u.arrives(1, seq, seq)
	}
	u.looks(9, 9)
	now := mark{u.b.ses.pin.balance.done, true, u.b.ses.pin.last}
	for n := range 5 {
		u.looksWith(now, 8-n, 9, uint64(n+1), removed{first: uint64(n + 2)})
	}
	u.looksWith(now, 3, 9, 5, removed{first: 6, between: []uint64{7}})
	u.arrives(2, 6, 10)
	now.last = u.b.ses.pin.last
	u.looksWith(now, 3, 10, 5, removed{first: 6, between: []uint64{7}})
	if last := u.comeAgain(11); last != 10 {
		t.Errorf("%d were given back, want none", last-10)
	}
	if ms := u.receive(5); len(ms) != 4 || ms[0].Offset != 6 { // the 7th nobody else had: it is handled
		t.Errorf("%d messages are handed out, want 4", len(ms))
	}
}
