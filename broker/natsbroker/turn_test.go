package natsbroker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// A request of a process that stood by may be answered by the consumer that was made anew, at an inbox that was left by then. It
// is still listened to, and what comes is our turn if the new consumer says so. A server does that at its own time, so it is
// played.
func TestPinnedAtAnInboxThatWasLeft(t *testing.T) {
	for name, c := range map[string]struct {
		pinned string
		ours   bool
	}{"by the new consumer": {"x", true}, "by the one before": {"another", false}} {
		t.Run(name, func(t *testing.T) {
			s, begin := standingBy(t)
			watched, pins := watchSide{s.held}, pinSide{s.held}
			before := begin()
			b := askedAt(t, s, before)
			if old, _ := watched.fence(before, connEpoch{}, nil); old != nil {
				t.Fatal("it listens no more while its request is with the server")
			}
			ses := begin()
			for range 2 { // the second time it comes when all is known
				s.puller.arrived(b, pinnedBy("x"))
				if n := len(s.outbox.settles.naks); n > 0 && ses.pin.id == "" {
					t.Fatal("it is given back before it is known whose it is")
				}
				pins.learned(ses, pins.question(ses), infoOfPin(c.pinned))
			}
			if ours := ses.pin.id == "x"; ours != c.ours {
				t.Errorf("it is our turn: %v", ours)
			}
			if n := len(s.outbox.settles.naks); (n == 2) != c.ours || (n == 0) == c.ours {
				t.Errorf("%d were given back", n)
			}
			if len(s.held.stock.pulls.lingered(0)) != 1 {
				t.Error("it listens on though its request was answered")
			}
		})
	}
}

// The consumer that was made anew is asked whom it pins, for the sake of an earlier id; before it has answered, a delivery comes
// by which it has pinned us. The answer is of before that, so it does not say that the pin is another's.
func TestPinnedWhileItWasAsked(t *testing.T) {
	s, begin := standingBy(t)
	watched, pins := watchSide{s.held}, pinSide{s.held}
	s.held.stock.pinID = "earlier"
	before := begin()
	b := askedAt(t, s, before)
	watched.fence(before, connEpoch{}, nil)
	ses := begin()

	asked := pins.question(ses)
	s.puller.arrived(b, pinnedBy("x"))
	pins.learned(ses, asked, infoOfPin(""))
	if _, a, _ := pins.step(0); a != pinLearn {
		t.Errorf("the next action is %d, and whose the pin is remains unknown", a)
	}
	pins.learned(ses, pins.question(ses), infoOfPin("x"))
	if ses.pin.id != "x" || len(s.outbox.settles.naks) != 1 {
		t.Errorf("our pin is %q, and %d deliveries were given back", ses.pin.id, len(s.outbox.settles.naks))
	}
}

// The delivery that comes with the pin may come before the session has begun that is to have it, and the connection may be lost
// before the consumer has said whom it pins. Neither makes it another's.
func TestPinnedBeforeTheSession(t *testing.T) {
	for name, broken := range map[string]bool{"with the connection": false, "over another one": true} {
		t.Run(name, func(t *testing.T) {
			s, begin := standingBy(t)
			watched, pins := watchSide{s.held}, pinSide{s.held}
			before := begin()
			b := askedAt(t, s, before)
			watched.fence(before, connEpoch{}, nil)
			between := begin()
			watched.fence(between, connEpoch{}, nil)
			s.puller.arrived(b, pinnedBy("x"))
			ses := begin()
			if broken {
				s.held.lost()
			}
			pins.learned(ses, pins.question(ses), infoOfPin("x"))
			if ses.pin.id != "x" || len(s.outbox.settles.naks) != 1 {
				t.Errorf("our pin is %q, and %d deliveries were given back", ses.pin.id, len(s.outbox.settles.naks))
			}
		})
	}
}

// The puller may be about to enter an inbox when the session ends that it is for. Nothing is asked for there: what the consumer
// that was made anew answers to it would not be listened to.
func TestNothingIsAskedForAnEndedSession(t *testing.T) {
	s, begin := standingBy(t)
	ses := begin()
	watchSide{s.held}.fence(ses, connEpoch{}, nil)
	late := &inbox{ses: ses, prefix: "_INBOX.x."}
	side := pullSide{s.held}
	side.reviving()
	if old, ok := side.enter(late); ok || old != late {
		t.Error("it enters an inbox of a session that has ended")
	}
	if _, ok := side.next(); ok {
		t.Error("it asks for a message of a session that has ended")
	}
}

// A request of one who stands by stays with the server when its source is paused or stopped, and may be pinned just then. So it
// is listened to until it is over.
func TestPinnedAtTheInboxBeforeAPause(t *testing.T) {
	for name, halt := range map[string]func(*Source){
		"paused":  func(s *Source) { s.held.pause(true) },
		"stopped": func(s *Source) { s.held.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			s, begin := standingBy(t)
			ses := begin()
			b := askedAt(t, s, ses)
			halt(s)
			if step := (pullSide{s.held}).step(); !step.idle || step.old[0] != nil {
				t.Fatal("it listens no more while its request is with the server")
			}
			s.puller.arrived(b, pinnedBy("x"))
			if _, a, _ := (pinSide{s.held}).step(0); a != pinFree || len(s.outbox.settles.naks) != 1 {
				t.Errorf("the next action is %d, and %d were given back: another process waits", a, len(s.outbox.settles.naks))
			}
			if over := (pullSide{s.held}).step().old; over[0] != b || over.mayBePinned() {
				t.Error("it listens on though its request was answered")
			}
		})
	}
}

// A request that was with the server when our turn began is one of one who stands by still, whatever inbox that leaves behind.
func TestAskedBeforeOurTurn(t *testing.T) {
	s, begin := standingBy(t)
	ses := begin()
	askedAt(t, s, ses)
	now := askedAt(t, s, ses)
	s.held.mu.Lock()
	s.held.stock.beginTurn(ses, "x") // by the first
	s.held.mu.Unlock()
	if old, _ := (pullSide{s.held}).enter(&inbox{ses: ses, prefix: "_INBOX.z."}); old == now {
		t.Error("it listens no more while its request is with the server")
	}
}

// Who stands by may be pinned at an inbox that was left for another one, of the same session: its request is still with the
// server.
func TestPinnedAtTheInboxBefore(t *testing.T) {
	s, begin := standingBy(t)
	ses := begin()
	b := askedAt(t, s, ses)
	if old, ok := (pullSide{s.held}).enter(&inbox{ses: ses, prefix: "_INBOX.y."}); old != nil || !ok {
		t.Fatal("it listens no more while its request is with the server")
	}
	s.puller.arrived(b, pinnedBy("x"))
	if ses.pin.id != "x" {
		t.Error("it is our turn, and we do not know it")
	}
}

// A request of when we stood by may be with the server still when it is our turn. When that is over the server can pin it: it is
// our turn anew.
func TestPinnedOnceMore(t *testing.T) {
	for name, late := range map[string]bool{"before the next session": false, "in the next session": true} {
		t.Run(name, func(t *testing.T) {
			s, begin := standingBy(t)
			pins := pinSide{s.held}
			ses := begin()
			b := askedAt(t, s, ses)
			now := askedAt(t, s, ses) // b lingers
			s.puller.arrived(now, pinnedBy("x"))
			if !late {
				s.puller.arrived(b, pinnedBy("y"))
			}
			s.held.stock.lose(ses, errPinTaken)
			for range 3 {
				if _, a, _ := pins.step(0); a == pinEnd {
					pins.fence(ses)
					pins.follow(ses)
				}
			}
			if late {
				s.puller.arrived(b, pinnedBy("y"))
			}
			next := s.held.stock.ses
			if next == ses {
				t.Fatal("the turn by the first pin is not over")
			}
			pins.learned(next, pins.question(next), infoOfPin("y"))
			if next.pin.id != "y" {
				t.Errorf("our pin is %q", next.pin.id)
			}
		})
	}
}

// standingBy is a source in an order, and what begins a session of it.
func standingBy(t *testing.T) (s *Source, begin func() *session) {
	t.Helper()
	s, err := NewSource(Config{Stream: "S", Consumer: "c"})
	if err != nil {
		t.Fatal(err)
	}
	s.held.open(broker.Options{Ordered: true, Budget: broker.Budget{Messages: 10, Bytes: 100_000}})
	return s, func() *session {
		ses := newSession(s.held, "", 10)
		ses.pin.group = pinGroup
		watchSide{s.held}.begin(ses, durable{consumer: &jetstream.ConsumerInfo{Config: Config{}.Durable(true)}})
		return ses
	}
}

// askedAt has a new inbox, at which one message was asked for.
func askedAt(t *testing.T, s *Source, ses *session) *inbox {
	t.Helper()
	b := &inbox{ses: ses, prefix: "_INBOX.x."}
	side := pullSide{s.held}
	side.reviving()
	side.enter(b)
	if p, ok := side.next(); !ok || p.to != b {
		t.Fatal("nothing is asked for")
	}
	return b
}

// pinnedBy is a delivery that comes with a pin's id.
func pinnedBy(id string) *nats.Msg {
	return &nats.Msg{Subject: "s.a", Header: nats.Header{pinHeader: {id}}, Reply: "$JS.ACK.S.c.1.5.1.1700000000000000000.0"}
}

// infoOfPin is what the consumer says of itself.
func infoOfPin(id string) *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{PriorityGroups: []jetstream.PriorityGroupState{{PinnedClientID: id}}}
}

// What the process before settled between its redelivery here and the first count of our turn is not taken for what that process
// still has out: message 2 comes here, and its ack; message 1 is out.
func TestAckBeforeTheFirstCount(t *testing.T) {
	s, err := NewSource(Config{Stream: "S", Consumer: "c"})
	if err != nil {
		t.Fatal(err)
	}
	s.held.open(broker.Options{Ordered: true, Budget: broker.Budget{Messages: 10, Bytes: 100_000}})
	ses := newSession(s.held, "", 10)
	ses.pin.group = pinGroup
	cc := Config{}.Durable(true)
	cc.AckWait = DefaultAckWait
	watchSide{s.held}.begin(ses, durable{consumer: &jetstream.ConsumerInfo{Config: cc}})
	b := &inbox{ses: ses, prefix: "_INBOX.x."}
	s.held.stock.pulls.enter(b)
	s.held.stock.pulls.sent(request{id: 1, batch: 1})
	s.puller.arrived(b, &nats.Msg{Subject: "s.a", Header: nats.Header{pinHeader: {"x"}},
		Reply: "$JS.ACK.S.c.2.2.7.1700000000000000000.0"})
	count := func(pending int) {
		info := infoOfPin("x")
		info.NumAckPending, info.Delivered.Consumer = pending, 7
		pinSide{s.held}.gathered(ses, info, removed{}, mark{ses.pin.balance.done, true, ses.pin.last})
	}
	count(1)
	if len(s.outbox.settles.naks) != 1 || ses.slots.used != 0 {
		t.Errorf("%d were given back and %d are here: whether it is settled is not learned", len(s.outbox.settles.naks),
			ses.slots.used)
	}
	if count(1); !ses.pin.gathering {
		t.Error("it goes on while message 1 is out")
	}
	if count(0); ses.pin.gathering {
		t.Error("nothing is out, and it does not go on")
	}
}

// What others settle while it is here is not taken for what is missing, whatever else changes the server's count meanwhile.
// Message 2 was redelivered here and is in hand, and whoever had it before settles it.
func TestAckOfOthersInOurTurn(t *testing.T) {
	for name, meanwhile := range map[string]func(u *playedTurn) (pending int, last uint64){
		"a first delivery was lost with the connection": func(u *playedTurn) (int, uint64) {
			u.arrives(1, 6, 6) // the fifth was of message 5
			return 3, 6        // 1, 5, 6
		},
		"an ack was lost with the connection": func(u *playedTurn) (int, uint64) {
			u.arrives(1, 5, 5)
			u.ack(u.receive(1)...)
			u.arrives(1, 6, 6)
			u.nack(u.receive(1)...)
			u.arrives(2, 5, 7)
			u.arrives(1, 7, 8)
			return 3, 8 // 1, 6, 7
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := playTurn(t)
			u.arrives(2, 1, 1)
			u.arrives(2, 2, 2)
			u.looks(2, 2) // both may be settled, and go back
			u.comeAgain(3)
			u.looks(2, 4)
			if n := len(u.receive(2)); n != 2 {
				t.Fatalf("%d messages are handed out", n)
			}
			pending, last := meanwhile(u)
			for range 3 {
				u.looks(pending, last)
				last = u.comeAgain(last + 1)
			}
			if n := len(u.receive(2)); n > 0 {
				t.Errorf("%d messages are handed out though what stands before them is missing", n)
			}
		})
	}
}

// What the server has not taken yet of our acks says nothing of what others settled: what is here stays here.
func TestOwnAcksOnTheirWay(t *testing.T) {
	u := playTurn(t)
	u.arrives(1, 1, 1)
	u.arrives(1, 2, 2)
	u.looks(2, 2)
	out := u.receive(2)
	u.arrives(1, 3, 3)
	u.nack(out[0]) // it is gathered again
	mark := pinSide{u.s.held}.mark(u.b.ses)
	u.ack(out[1])
	u.looksBy(mark, 3, 3)
	if mark = (pinSide{u.s.held}).mark(u.b.ses); mark.taken {
		t.Error("the server is said to have taken an ack that was not written")
	}
	u.looksBy(mark, 3, 3)
	u.looks(2, 3) // now it has
	if last := u.comeAgain(4); last != 3 {
		t.Errorf("%d were given back, want none", last-3)
	}
	if n := len(u.receive(1)); n > 0 {
		t.Errorf("%d messages are handed out though what stands before them is missing", n)
	}
}

// Somebody resets the consumer while it is gathered: it counts from the beginning, and what is missing does not come.
func TestResetWhileGathering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := playTurn(t)
		u.arrives(1, 1, 1)
		u.arrives(1, 2, 2)
		u.looks(2, 2)
		u.nack(u.receive(1)...)
		u.looks(2, 2)
		u.looks(0, 0)
		if !u.b.ses.pin.gathering {
			t.Fatal("a count that is of before the newest delivery was taken for the present one")
		}
		time.Sleep(DefaultAckWait / 3)
		u.looks(0, 0)
		if u.b.ses.pin.gathering {
			t.Error("it waits for what is missing by the count before")
		}
		if ms := u.receive(2); len(ms) != 1 || ms[0].Offset != 2 {
			t.Errorf("%d messages are handed out, want the one that is here", len(ms))
		}
	})
}

// Another one is pinned: perhaps on a consumer that somebody made anew under the same name. What is given back is not said before
// it is known to be the same, for it may be of the other's messages.
func TestPinTakenIsInDoubt(t *testing.T) {
	for name, take := range map[string]func(u *playedTurn){
		"told with a message": func(u *playedTurn) { u.s.puller.arrived(u.b, pinnedBy("y")) },
		"told by a renewal": func(u *playedTurn) {
			pinSide{u.s.held}.renewed(u.b.ses, pinLease{}, pullUnpinned)
		},
		"told by the consumer": func(u *playedTurn) {
			pinSide{u.s.held}.gathered(u.b.ses, infoOfPin("y"), removed{}, mark{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := playTurn(t)
			over := connEpoch{nth: 1}
			u.s.outbox.vouched(u.s.outbox.ask(over))
			u.arrives(1, 1, 1)
			if take(u); u.b.ses.pin.lost == nil || len(u.s.outbox.settles.naks) == 0 {
				t.Fatal("the turn is not over, or nothing went back")
			}
			if u.s.outbox.isSure(over) {
				t.Error("it is taken for sure that the consumer is the same")
			}
		})
	}
}

// A count that is behind is asked for again at once only while a better one is to be expected.
func TestCountBehind(t *testing.T) {
	const wait = int64(16 * time.Second)
	p := pin{last: 10, since: int64(time.Second)}
	for _, c := range []struct {
		last, mark uint64
		now        time.Duration
		want       bool
	}{
		{10, 10, time.Second, false},
		{10, 9, time.Second, false},
		{11, 10, time.Second, false},
		{9, 9, time.Hour, true},                // another one came meanwhile
		{9, 10, 1999 * time.Millisecond, true}, // a replica counts what it has agreed on
		{9, 10, 2 * time.Second, false},        // it stays so
	} {
		if got := p.behind(count{last: c.last}, mark{last: c.mark}, int64(c.now), wait); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A playedTurn is a source whose turn it is.
type playedTurn struct {
	t *testing.T
	s *Source
	b *inbox
}

func playTurn(t *testing.T) *playedTurn {
	t.Helper()
	s, begin := standingBy(t)
	ses := begin()
	s.held.stock.leases.ackWait = int64(DefaultAckWait)
	return &playedTurn{t, s, askedAt(t, s, ses)}
}

// arrives is a delivery of a message, the consumer's last.
func (u *playedTurn) arrives(delivered int, stream, consumer uint64) {
	u.s.puller.arrived(u.b, &nats.Msg{Subject: "s.a", Header: nats.Header{pinHeader: {"x"}},
		Reply: fmt.Sprintf("$JS.ACK.S.c.%d.%d.%d.1700000000000000000.0", delivered, stream, consumer)})
}

// comeAgain delivers what was given back at once, from a consumer sequence on, and returns the last one.
func (u *playedTurn) comeAgain(consumer uint64) (last uint64) { return u.comeAgainWithout(0, consumer) }

// comeAgainWithout is comeAgain where one message is settled, of those whose number ends so.
func (u *playedTurn) comeAgainWithout(settled, consumer uint64) (last uint64) {
	naks := u.s.outbox.settles.naks
	u.s.outbox.settles.naks = nil
	for _, n := range naks {
		if d, _ := parseReply(n.reply); n.delay == 0 && (settled == 0 || d.stream%10 != settled) {
			u.arrives(int(d.delivered)+1, d.stream, consumer)
			consumer++
		}
	}
	return consumer - 1
}

// looks is a look at the consumer, which has so many unsettled messages, and all acks.
func (u *playedTurn) looks(pending int, last uint64) {
	u.looksBy(mark{u.b.ses.pin.balance.done, true, u.b.ses.pin.last}, pending, last)
}

func (u *playedTurn) looksBy(m mark, pending int, last uint64) {
	u.looksWith(m, pending, last, 0, removed{})
}

// looksWith is a look at the consumer and at the stream.
func (u *playedTurn) looksWith(m mark, pending int, last, floor uint64, gone removed) {
	info := infoOfPin("x")
	info.NumAckPending, info.Delivered.Consumer, info.AckFloor.Stream = pending, last, floor
	pinSide{u.s.held}.gathered(u.b.ses, info, gone, m)
}

func (u *playedTurn) receive(n int) []broker.Message {
	dst := make([]broker.Message, n)
	n, _ = u.s.held.receive(dst)
	return dst[:n]
}

func (u *playedTurn) ack(ms ...broker.Message) {
	for _, m := range ms {
		_ = u.s.Ack(m.Claim, []uint64{m.Token})
	}
}

// misses gives messages back, and what is said is on its way for long.
func (u *playedTurn) misses(ms ...broker.Message) {
	for _, m := range ms {
		_ = u.s.Nack(m.Claim, []broker.Back{{Token: m.Token}})
	}
	u.s.outbox.settles.naks = nil
}

func (u *playedTurn) nack(ms ...broker.Message) {
	for _, m := range ms {
		_ = u.s.Nack(m.Claim, []broker.Back{{Token: m.Token, Delay: time.Hour}})
	}
}
