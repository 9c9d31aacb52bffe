package natsbroker_test

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Deliveries that were on their way when the connection went come again by their ack wait, and nothing that stands behind them
// comes before.
func TestOrderOverALostConnection(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	s := open(t, pinConfig(p.url()), inOrder)
	a.publish(1, 3)
	ack(t, s, receive(t, s, 3)...)
	p.cut(toClient)
	a.publish(4, 6)
	eventually(t, "these are on their way", func() bool { return a.info().NumAckPending == 3 })
	p.drop()
	p.heal()
	eventually(t, "it asks for more", func() bool { return a.info().NumWaiting > 0 })
	a.publish(7, 9)
	inStreamOrder(t, s, 4, 6)
	a.settled()
}

// A server that does not know that a connection is dead answers the requests that came over it, and those of the new connection,
// in turns.
func TestOrderBesideADeadConnection(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	dead, alive := startProxy(t, ts.opts.Port), startProxy(t, ts.opts.Port)
	alive.shut()
	cfg := pinConfig(dead.url())
	cfg.URLs = append(cfg.URLs, alive.url())
	cfg.PingInterval, cfg.AckWait = 200*time.Millisecond, 6*time.Second // it is to be back before its pin is in doubt
	s := open(t, cfg, func(o *broker.Options) {
		inOrder(o)
		o.Budget.Messages = 6 // it asks for so many, which the dead requests are to have soon
	})
	a.publish(1, 3)
	ack(t, s, receive(t, s, 3)...)
	before := a.info().NumWaiting
	alive.heal()
	dead.cut(toServer, toClient)
	eventually(t, "it asks over the other connection", func() bool { return a.info().NumWaiting > before })
	pass(t, 300*time.Millisecond, "it has asked for all that it may")
	a.publish(4, 15)
	inStreamOrder(t, s, 4, 6)
	inStreamOrder(t, s, 10, 6)
	a.settled()
}

// What is here and was removed from the stream meanwhile is counted by the server no more, and is not taken for what is missing.
func TestOrderBesideMessagesThatAreRemoved(t *testing.T) {
	t.Parallel()
	remove := func(t *testing.T, a *admin, seq uint64, unsettled int) {
		st := must(a.js.Stream(t.Context(), "S"))
		if err := st.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the consumer has let go of it", func() bool { return a.info().NumAckPending == unsettled })
	}
	t.Run("lost connection", func(t *testing.T) {
		t.Parallel()
		ts, a := serveStream(t)
		p := startProxy(t, ts.opts.Port)
		s := open(t, pinConfig(p.url()), inOrder)
		a.publish(1, 3)
		out := receive(t, s, 3)
		remove(t, a, 3, 2)
		p.cut(toClient)
		a.publish(4, 4)
		eventually(t, "it is on its way", func() bool { return a.info().NumAckPending == 3 })
		p.drop()
		p.heal()
		eventually(t, "it asks for more", func() bool { return a.info().NumWaiting > 0 })
		a.publish(5, 6)
		inStreamOrder(t, s, 4, 3)
		ack(t, s, out...)
		a.settled()
	})
	t.Run("given back", func(t *testing.T) {
		t.Parallel()
		ts, a := serveStream(t)
		s := open(t, pinConfig(ts.url()), inOrder)
		a.publish(1, 3)
		out := receive(t, s, 3)
		remove(t, a, 3, 2)
		if err := s.Nack(out[1].Claim, []broker.Back{{Token: out[1].Token, Delay: 500 * time.Millisecond}}); err != nil {
			t.Fatal(err)
		}
		a.publish(4, 4)
		again := receive(t, s, 2)
		if again[0].Offset != 2 || again[1].Offset != 4 {
			t.Errorf("%d and %d came, want 2 and 4", again[0].Offset, again[1].Offset)
		}
		ack(t, s, out[0], out[2])
		ack(t, s, again...)
		a.settled()
	})
	t.Run("given back while the stream is silent", func(t *testing.T) {
		t.Parallel()
		ts, a := serveStream(t)
		p := startProxy(t, ts.opts.Port)
		cfg := pinConfig(p.url())
		s := open(t, cfg, inOrder)
		a.publish(1, 3)
		out := receive(t, s, 3)
		remove(t, a, 3, 2)
		loseAnswers(p, "stream_info_response", 1000)
		if err := s.Nack(out[1].Claim, []broker.Back{{Token: out[1].Token, Delay: 2 * cfg.AckWait}}); err != nil {
			t.Fatal(err)
		}
		a.publish(4, 4)
		pass(t, cfg.AckWait, "it asks the stream, which does not answer")
		p.rewrite(nil)
		again := receive(t, s, 2)
		if again[0].Offset != 2 || again[1].Offset != 4 {
			t.Errorf("%d and %d came, want 2 and 4", again[0].Offset, again[1].Offset)
		}
		ack(t, s, out[0], out[2])
		ack(t, s, again...)
		a.settled()
	})
}

// What a stream let go of while a process handles it, another one that gets the turn cannot know: it goes on beside that handler,
// whose process is told, and has RevokeWait.
func TestTurnBesideAMessageThatIsRemoved(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	sc := must(a.js.Stream(t.Context(), "S")).CachedInfo().Config
	sc.MaxMsgsPerSubject = 1
	must(a.js.UpdateStream(t.Context(), sc))
	cfg := pinConfig(ts.url())
	cfg.RevokeWait = time.Minute
	before := open(t, cfg, inOrder)
	a.publish(1, 1)
	out := receive(t, before, 1)
	a.publish(2, 2)
	eventually(t, "the stream has the newest alone", func() bool {
		return must(a.js.Stream(t.Context(), "S")).CachedInfo().State.FirstSeq == 2
	})
	inStreamOrder(t, before, 2, 1)
	next := drainAll(open(t, cfg, inOrder))
	a.unpin()
	a.publish(3, 3)
	eventually(t, "the next one goes on, for all that the server has is settled", func() bool { return next.got(3) })
	eventually(t, "the one before is told", func() bool { return !out[0].Claim.Startable() })
	select {
	case <-out[0].Claim.Ended():
		t.Error("its handlers had no time")
	default:
	}
	ack(t, before, out...)
	eventually(t, "it has no turn any more, when nothing is out", func() bool {
		select {
		case <-out[0].Claim.Ended():
			return true
		default:
			return false
		}
	})
	next.stop(t)
	a.settled()
}

// inStreamOrder receives n messages from an offset on, in the order of the stream, and acks them.
func inStreamOrder(t *testing.T, s *opened, from int64, n int) {
	t.Helper()
	ms := receive(t, s, n)
	for i, m := range ms {
		if m.Offset != from+int64(i) {
			t.Errorf("message %d of %d has offset %d, want %d", i+1, n, m.Offset, from+int64(i))
		}
	}
	ack(t, s, ms...)
}

// What is here and was settled meanwhile by the process before, whose acks came late, is not taken for what that process still
// has out.
func TestOrderDespiteLateAcks(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	before := open(t, pinConfig(p.url()), inOrder)
	a.publish(1, 3)
	done := receive(t, before, 3)
	pass(t, time.Second, "half of the ack wait passes") // so that these come again before the next
	a.publish(4, 4)
	out := receive(t, before, 1)
	ackLate(t, p, before, done...)
	a.unpin()
	next := drainAll(open(t, pinConfig(ts.url()), inOrder))
	a.publish(5, 5)
	eventually(t, "the other process is pinned, and has what was done", func() bool { // or all, where this test had no processor
		return a.info().NumRedelivered >= 3 || next.got(5)
	})
	p.heal()
	eventually(t, "the acks have come", func() bool { return a.info().AckFloor.Stream >= 3 })
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if next.got(5) && !settledOrBack(a, 4) {
			t.Fatal("it goes on while message 4 is out")
		}
	}
	_ = before.Ack(out[0].Claim, []uint64{out[0].Token}) // or it comes again
	eventually(t, "it goes on", func() bool { return next.got(5) })
	next.stop(t)
	a.settled()
}

// settledOrBack says whether a message is settled, or was delivered again.
func settledOrBack(a *admin, seq uint64) bool {
	i := a.info()
	return i.AckFloor.Stream >= seq || i.NumRedelivered > 0
}

// The same where what it still has stands before what it settled late, and is as much.
func TestOrderDespiteLateAcksBehind(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	before := open(t, pinConfig(p.url()), inOrder)
	a.publish(1, 4)
	ms := receive(t, before, 4)
	pass(t, time.Second, "half of the ack wait passes")
	for _, m := range ms[:2] { // these have a new lease
		if err := before.Nack(m.Claim, []broker.Back{{Token: m.Token, Runs: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, before, 2)
	ackLate(t, p, before, ms[2:]...)
	a.unpin()
	next := drainAll(open(t, pinConfig(ts.url()), inOrder))
	a.publish(5, 5)
	eventually(t, "the other process is pinned, and has what was done", func() bool { // or all, where this test had no processor
		return a.info().NumRedelivered >= 4 || next.got(5)
	})
	p.heal()
	eventually(t, "it goes on", func() bool { return next.got(5) })
	if !next.got(1) || !next.got(2) {
		t.Error("it went on while messages 1 and 2 were out")
	}
	next.stop(t)
	a.settled()
}
