package kafkabroker

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Each phase and event: what follows. What is not listed leaves the phase as it is.
func TestTransactionPhases(t *testing.T) {
	const s, i, u, b, x, d = txnStranger, txnIdle, txnUnderWay, txnBroken, txnUnclear, txnSettled
	table := map[txnPhase][7]txnPhase{
		//  named begun failed ended unanswered confirmed told
		s: {i, s, s, s, s, s, s},
		i: {i, u, i, i, i, i, i},
		u: {u, u, b, i, x, u, u},
		b: {i, b, b, b, b, b, b},
		x: {d, x, x, x, x, b, x},
		d: {d, d, d, d, d, d, i},
	}
	for p, row := range table {
		for e, want := range row {
			if got := p.after(txnEvent(e)); got != want {
				t.Errorf("phase %d, event %d: %d, want %d", p, e, got, want)
			}
		}
		if named := p == s || p == b || p == x; p.needsName() != named {
			t.Errorf("phase %d needs a name: %v", p, !named)
		}
		if asks := p == x || p == d; p.isOpenQuestion() != asks {
			t.Errorf("phase %d is an open question: %v", p, !asks)
		}
	}
}

// modelBroker is a transaction coordinator that loses requests and answers.
type modelBroker struct {
	rnd      *rand.Rand
	open     []int // what the open transaction has
	stored   []int
	offset   int // committed, or what a stranger has put there
	offsetTo int // in the open transaction
	isOpen   bool
	ended    bool // the last transaction under this name was committed
	copies   int  // of an end that are under way yet
}

func (b *modelBroker) arrives() bool { return b.rnd.IntN(4) > 0 }

// end commits what is open, and says yes to what is committed already.
func (b *modelBroker) end() (ok bool) {
	if b.isOpen {
		b.stored, b.offset, b.open, b.isOpen, b.ended = append(b.stored, b.open...), b.offsetTo, nil, false, true
	}
	return b.ended
}

// add takes an output into the transaction. A copy of an end that was on its way may come behind it.
func (b *modelBroker) add(o, upTo int) {
	b.isOpen, b.ended, b.open, b.offsetTo = true, false, append(b.open, o), upTo
	if b.copies > 0 && b.rnd.IntN(2) == 0 {
		b.copies--
		b.end()
	}
}

// name aborts what is open, and lets nothing that was sent before it count.
func (b *modelBroker) name() { b.open, b.isOpen, b.ended, b.copies = nil, false, false, 0 }

// TestTransactionModel drives the phases against a coordinator that loses one request in four and one answer in four, or
// delivers them late, and aborts what takes long; a stranger commits other offsets in between. Each output is stored once, in
// order, whatever happens.
func TestTransactionModel(t *testing.T) {
	for seed := range uint64(300) {
		b := &modelBroker{rnd: rand.New(rand.NewPCG(seed, 1))}
		p, next, upTo := txnStranger, 0, 0
		const n = 200
		for step := 0; next < n && step < 100_000; step++ {
			switch {
			case p == txnUnclear:
				if b.isOpen && b.rnd.IntN(8) == 0 {
					b.name() // it took too long
				}
				if b.rnd.IntN(8) == 0 {
					b.offset = -1 // a stranger's
				}
				if !b.arrives() {
					continue
				}
				switch ok := b.end(); {
				case !b.arrives():
				case ok:
					p, next = p.after(txnConfirmed), upTo
				default:
					b.name()
					p = p.after(txnNamed)
				}
			case p.needsName():
				if !b.arrives() {
					continue
				}
				b.name()
				if b.arrives() {
					p = p.after(txnNamed)
				}
			case p.isOpenQuestion():
				if b.arrives() { // an answer is all that it takes
					if b.offset == upTo {
						next = upTo
					}
					p = p.after(txnTold)
				}
			default:
				p, upTo = p.after(txnBegun), next+1+b.rnd.IntN(5)
				for o := next; o < upTo; o++ {
					if b.arrives() {
						b.add(o, upTo)
					}
				}
				if len(b.open) < upTo-next || !b.arrives() {
					p = p.after(txnFailed)
					continue
				}
				if !b.arrives() {
					b.copies++ // late, and not lost
				} else if ok := b.end(); ok && b.arrives() {
					p, next = p.after(txnEnded), upTo
					continue
				}
				p = p.after(txnUnanswered)
			}
		}
		if len(b.stored) < n {
			t.Fatalf("seed %d: %d outputs are stored, want %d: it does not go on", seed, len(b.stored), n)
		}
		for i, o := range b.stored {
			if i != o {
				t.Fatalf("seed %d: output %d is stored at %d", seed, o, i)
			}
		}
	}
}

// TestTransactionsTurn: what was lost before a transaction begins is not written by it, and where partitions begin is read
// behind the one that is under way.
func TestTransactionsTurn(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "in"))
	cfg := Config{Connection: Connection{Brokers: c.ListenAddrs()}, Group: "g", Topics: []string{"in"}}.withDefaults()
	net, err := cfg.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer net.transport.CloseIdleConnections()
	x := newTransactor(&coordinator{c: net, group: "g"}, &cfg)
	cs := []*commitment{{partitionID: partitionID{"in", 0}, offset: 5}}
	lost := func() bool { return false }
	err = x.commit(t.Context(), lost, map[memberID][]*commitment{{}: cs}, nil)
	if !errors.Is(err, errNotOurs) || !errors.Is(cs[0].err, errAborted) {
		t.Errorf("of what was lost: %v, and the commitment says %v", err, cs[0].err)
	}
	if err := x.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := x.positions(t.Context(), []partitionID{{"in", 0}})
		read <- err
	}()
	select {
	case err := <-read:
		t.Errorf("it is read beside a transaction: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	x.leave()
	if err := <-read; err != nil && codeOf(err) == 0 { // the broker answers, that there is no such group
		t.Errorf("behind it: %v", err)
	}
}

// TestAbandonUnclear: the source ends while nobody knows what became of its last transaction, which is open. It is ended with the
// source: else whoever has the partitions next waits for as long as a transaction may take.
func TestAbandonUnclear(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "in"))
	cfg := Config{Connection: Connection{Brokers: c.ListenAddrs()}, Group: "g", Topics: []string{"in"}}.withDefaults()
	net, err := cfg.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer net.transport.CloseIdleConnections()
	x := newTransactor(&coordinator{c: net, group: "g"}, &cfg)
	c.ControlKey(keyEndTxn, func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("cut off"), true })
	cs := []*commitment{{partitionID: partitionID{"in", 0}, offset: 5}}
	err = x.commit(t.Context(), func() bool { return true }, map[memberID][]*commitment{{generation: -1}: cs}, nil)
	if !errors.Is(err, errUnclear) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	x.abandon(ctx)
	if g := c.GroupInfo("g"); g == nil || g.Commits["in"][0].Offset != 5 {
		t.Errorf("it is open: of the group is known %+v", g)
	}
}
