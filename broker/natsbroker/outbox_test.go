package natsbroker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// post is an outbox without a connection: what it would send is seen, and the server's answers are played.
type post struct {
	*outbox
	t    *testing.T
	now  int64
	late int
}

var here = connEpoch{nth: 1, server: "S"}

func newPost(t *testing.T) *post {
	p := &post{t: t, now: int64(time.Hour)}
	p.outbox = newOutbox(func() int64 { return p.now }, nil, func(n int) { p.late += n })
	p.vouched(p.ask(here))
	return p
}

// write books the acks, promised until then, and checks what would be sent, and which receipts asked for.
func (p *post) write(until int64, acks []string, send []string, first, last bool) {
	p.t.Helper()
	for _, a := range acks {
		p.settles.acks = append(p.settles.acks, pendingAck{reply: a, until: until})
	}
	p.send(send, first, last)
}

func (p *post) send(send []string, first, last bool) {
	p.t.Helper()
	p.sendOver(here, send, first, last)
}

func (p *post) sendOver(over connEpoch, send []string, first, last bool) {
	p.t.Helper()
	out := p.take(over, true)
	var got []string
	for _, s := range out.acks {
		got = append(got, s.reply)
	}
	p.written(out, nil, 0)
	if f, l := out.first, out.last; !slices.Equal(got, send) || (f != 0) != first || (l != 0) != last {
		p.t.Fatalf("sent %q with receipts %d and %d; want %q, %v, %v", got, f, l, send, first, last)
	}
}

func (p *post) wantLeft(unproven, queued, late int) {
	p.t.Helper()
	if p.window.count != unproven || len(p.settles.acks) != queued || p.late != late {
		p.t.Fatalf("%d acks without a receipt, %d to be sent, %d told as late; want %d, %d, %d", p.window.count, len(p.settles.acks),
			p.late, unproven, queued, late)
	}
}

func TestReceipts(t *testing.T) {
	const lease, wait = int64(2 * time.Hour), int64(time.Minute)
	t.Run("a lone ack has one", func(t *testing.T) {
		p := newPost(t)
		p.write(lease, []string{"a"}, []string{"a"}, false, true)
		p.wantLeft(1, 0, 0)
		p.answered(lastReceipt(1), true)
		p.wantLeft(0, 0, 0)
	})
	t.Run("several have two", func(t *testing.T) {
		p := newPost(t)
		p.write(lease, []string{"a", "b", "c"}, []string{"a", "b", "c"}, true, true)
		p.answered(firstReceipt(1), true)
		p.wantLeft(3, 0, 0)
		p.answered(lastReceipt(1), true)
		p.wantLeft(0, 0, 0)
	})
	t.Run("without the first the last says nothing", func(t *testing.T) {
		p := newPost(t)
		p.write(lease, []string{"a", "b", "c"}, []string{"a", "b", "c"}, true, true)
		p.answered(lastReceipt(1), true)
		p.wantLeft(0, 3, 0)
	})
	t.Run("those of a moment share theirs", func(t *testing.T) {
		p := newPost(t)
		p.write(lease, []string{"a"}, []string{"a"}, false, true)
		p.write(lease, []string{"b"}, []string{"b"}, true, false)
		p.write(lease, []string{"c"}, []string{"c"}, false, false)
		p.now += askEvery
		p.write(lease, []string{"d"}, []string{"d"}, false, true)
		p.answered(lastReceipt(1), true)
		p.answered(firstReceipt(2), true)
		p.wantLeft(3, 0, 0)
		p.answered(lastReceipt(2), true)
		p.wantLeft(0, 0, 0)
	})
	t.Run("nobody may follow: the last is sent again", func(t *testing.T) {
		p := newPost(t)
		p.write(lease, []string{"a"}, []string{"a"}, false, true)
		p.write(lease, []string{"b", "c"}, []string{"b", "c"}, true, false)
		p.send(nil, false, false)
		p.review(here, wait)
		p.send([]string{"c"}, false, true)
		p.wantLeft(3, 0, 0)
	})
	t.Run("one that is refused is sent again", func(t *testing.T) {
		p := newPost(t)
		p.write(lease, []string{"a"}, []string{"a"}, false, true)
		p.answered(lastReceipt(1), false)
		if n, refused := p.left(); n != 1 || !refused {
			t.Fatal(n, refused)
		}
		p.review(here, wait)
		p.wantLeft(0, 1, 0)
	})
	t.Run("one that does not come is not waited for", func(t *testing.T) {
		p := newPost(t)
		p.write(lease, []string{"a"}, []string{"a"}, false, true)
		p.review(here, wait)
		p.wantLeft(1, 0, 0)
		p.now += int64(reviewEvery)
		p.review(connEpoch{nth: 2, server: "S"}, wait)
		p.wantLeft(1, 0, 0)
		p.review(here, wait)
		p.wantLeft(0, 1, 0)
	})
	t.Run("too late is told once", func(t *testing.T) {
		p := newPost(t)
		p.write(p.now+1, []string{"a", "b"}, []string{"a", "b"}, true, true)
		p.now += 2
		p.review(here, wait)
		p.wantLeft(2, 0, 2)
		p.answered(firstReceipt(1), true)
		p.answered(lastReceipt(1), true)
		p.wantLeft(0, 0, 2)
	})
	t.Run("one to a consumer that is no more is not sent again", func(t *testing.T) {
		p := newPost(t)
		p.write(lease, []string{"a", "b"}, []string{"a", "b"}, true, true)
		p.settles.acks = append(p.settles.acks, pendingAck{reply: "c", until: lease}) // perhaps of the next one
		p.letGo(here)
		p.wantLeft(0, 1, 2)
		again := connEpoch{nth: 2, server: "S"}
		p.reconnected(again)
		p.vouched(p.ask(again))
		p.now += askEvery
		p.sendOver(again, []string{"c"}, false, true)
	})
	t.Run("an abandoned one did not hold", func(t *testing.T) {
		p := newPost(t)
		p.write(lease, []string{"a", "b"}, []string{"a", "b"}, true, true)
		p.settles.acks = append(p.settles.acks, pendingAck{reply: "c", until: lease}, pendingAck{reply: "d", until: never})
		p.abandon()
		p.wantLeft(0, 0, 3)
	})
	t.Run("after a restart there is less time", func(t *testing.T) {
		p := newPost(t)
		until := p.now + wait
		p.write(until, []string{"a"}, []string{"a"}, false, true) // on its way
		p.add(&settles{acks: []pendingAck{{reply: "b", until: until}, {reply: "never", until: never}}}, wait, 0)
		p.now += 5
		restarted := connEpoch{nth: 2, server: "T"}
		p.reconnected(restarted)
		p.add(&settles{acks: []pendingAck{{reply: "c", until: until}, {reply: "new", until: p.now + wait}}}, wait, 0)
		want := []pendingAck{
			{reply: "b", until: until - restartLoss}, {reply: "never", until: never}, {reply: "a", until: until - restartLoss},
			{reply: "c", until: until - restartLoss}, {reply: "new", until: p.now + wait},
		}
		if !slices.Equal(p.settles.acks, want) {
			t.Errorf("%v, want %v", p.settles.acks, want)
		}
		p.vouched(p.ask(restarted))
		p.take(restarted, true)
		if got := p.window.batches[0].acks; !slices.Equal(got, want) {
			t.Errorf("they are written with %v, want %v", got, want)
		}
	})
}

// TestVouched proves that nothing is written over a connection before the consumer was found to be the one that it is about.
func TestVouched(t *testing.T) {
	const lease, wait = int64(2 * time.Hour), int64(time.Minute)
	next := connEpoch{nth: 2, server: "S"}
	rung := func(p *post) bool {
		select {
		case <-p.doubt:
			return true
		default:
			return false
		}
	}
	away := func(t *testing.T) *post { // a is unproven, b was never written, and the connection is another one
		p := newPost(t)
		p.write(lease, []string{"a"}, []string{"a"}, false, true)
		p.settles.acks = append(p.settles.acks, pendingAck{reply: "b", until: lease})
		p.reconnected(next)
		p.sendOver(next, nil, false, false)
		p.wantLeft(0, 2, 0)
		if !rung(p) {
			t.Fatal("nobody is asked whether the consumer is the same")
		}
		if p.sendOver(next, nil, false, false); rung(p) {
			t.Error("it is asked once more for each write")
		}
		return p
	}
	t.Run("it is the same", func(t *testing.T) {
		p := away(t)
		p.vouched(p.ask(next))
		p.now += askEvery
		p.sendOver(next, []string{"b", "a"}, true, true)
	})
	t.Run("it is another one", func(t *testing.T) {
		p := away(t)
		p.letGo(next)
		p.wantLeft(0, 0, 2)
	})
	t.Run("nobody has tried to write yet", func(t *testing.T) {
		p := newPost(t)
		p.write(lease, []string{"a"}, []string{"a"}, false, true)
		p.settles.acks = append(p.settles.acks, pendingAck{reply: "b", until: lease})
		p.letGo(next)
		p.wantLeft(0, 0, 2)
	})
	t.Run("it was asked over another connection", func(t *testing.T) {
		p := away(t)
		p.vouched(p.ask(here))
		p.sendOver(next, nil, false, false)
	})
	t.Run("a refusal", func(t *testing.T) {
		p := newPost(t)
		p.write(lease, []string{"a"}, []string{"a"}, false, true)
		before := p.ask(here)
		p.answered(lastReceipt(1), false)
		if !rung(p) {
			t.Fatal("nobody is asked whether the consumer is the same")
		}
		p.review(here, wait)
		p.send(nil, false, false)
		p.vouched(before) // it says nothing of the time after the refusal
		p.send(nil, false, false)
		p.vouched(p.ask(here))
		p.send([]string{"a"}, false, true)
	})
	t.Run("they are bounded", func(t *testing.T) {
		p := away(t)
		for range maxUnproven + 8 {
			p.settles.acks = append(p.settles.acks, pendingAck{reply: "c", until: lease})
		}
		p.sendOver(next, nil, false, false)
		p.wantLeft(0, maxUnproven, 10)
	})
}

// A batch of acks is told when the receipt for its last one was answered, once, and measured from when that was asked for.
func TestSettledIsTold(t *testing.T) {
	const lease = int64(2 * time.Hour)
	type told struct {
		asked int64
		err   error
	}
	of := func(do func(p *post)) (all []told) {
		p := newPost(t)
		p.settled = func(asked int64, err error) { all = append(all, told{asked - int64(time.Hour), err}) }
		p.write(lease, []string{"a", "b"}, []string{"a", "b"}, true, true)
		p.now += 7
		do(p)
		return all
	}
	for name, c := range map[string]struct {
		do   func(p *post)
		want []told
	}{
		"the first receipt says nothing yet": {func(p *post) { p.answered(firstReceipt(1), true) }, nil},
		"the last one does": {func(p *post) {
			p.answered(firstReceipt(1), true)
			p.answered(lastReceipt(1), true)
			p.answered(lastReceipt(1), true)
		}, []told{{0, nil}}},
		"nobody takes them": {func(p *post) {
			p.answered(firstReceipt(1), false)
			p.answered(lastReceipt(1), false)
			p.answered(lastReceipt(1), false)
		}, []told{{0, errNobodyTakes}}},
		"they went into another connection": {func(p *post) {
			p.reconnected(connEpoch{nth: 2, server: "S"})
			p.answered(lastReceipt(1), true)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := of(c.do); !slices.Equal(got, c.want) {
				t.Errorf("told %v, want %v", got, c.want)
			}
		})
	}
}

// TestGathering: an ack waits for others only where much is in hand, and a nak never.
func TestGathering(t *testing.T) {
	for _, tc := range []struct {
		acks, naks, inHand int
		waits              bool
	}{
		{1, 0, 1000, true}, {61, 0, 1000, true}, {62, 0, 1000, false}, {1, 1, 1000, false}, {0, 0, 1000, false},
		{1, 0, 64, true}, {4, 0, 64, false}, {1, 0, 31, false}, {1, 0, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPost(t)
			<-p.wake // it was vouched for
			p.add(&settles{acks: make([]pendingAck, tc.acks), naks: make([]nak, tc.naks)}, int64(time.Minute), tc.inHand)
			p.rouse()
			p.rouse()
			if waits := len(p.wake) == 0; waits != tc.waits {
				t.Errorf("%d acks and %d naks with %d in hand: they wait: %v, want %v", tc.acks, tc.naks, tc.inHand, waits, tc.waits)
			}
			time.Sleep(gatherTime)
			synctest.Wait()
			if len(p.wake) != 1 {
				t.Errorf("%d acks and %d naks with %d in hand: they wait for longer", tc.acks, tc.naks, tc.inHand)
			}
		})
	}
}
