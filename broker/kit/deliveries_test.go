package kit_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A claimed is one claim's Deliveries, driven as an adapter drives them.
type claimed struct {
	t    testing.TB
	gate kit.Gate
	ds   *kit.Deliveries[string]
}

const leaseOfTests = time.Minute

// inClaim runs a test with the virtual clock.
func inClaim(t *testing.T, f func(c *claimed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &claimed{t: t}
		c.gate.SetBudget(broker.Budget{Messages: 100, Bytes: 1000})
		c.ds = kit.NewDeliveries[string](leaseOfTests, &c.gate)
		f(c)
	})
}

// come lets a message come by its delivery of that number; 0: it is not handed out.
func (c *claimed) come(id string, count int32) (token uint64) {
	d, fresh := c.ds.Arrive(id, 10, count, time.Now())
	if fresh {
		token, _ = c.ds.HandOut(d)
	}
	return token
}

// back gives one back that has had so many runs.
func (c *claimed) back(token uint64, runs int32) (gone int64, err error) {
	return c.ds.Nack([]broker.Back{{Token: token, Runs: runs}})
}

// send says all that is to be said, and holds it against what was meant: "a/1 ack", "a/1 back", "a/1 back, ran".
func (c *claimed) send(want ...string) (unconfirmed int64) {
	c.t.Helper()
	settles, late := c.ds.Unsent(100)
	if got := texts(settles); !slices.Equal(got, want) {
		c.t.Errorf("sent is %q, want %q", got, want)
	}
	return late + c.ds.Sent(settles)
}

func texts(settles []kit.Settle[string]) (texts []string) {
	for _, s := range settles {
		text := fmt.Sprintf("%s/%d back", s.ID, s.Count)
		if s.Acked {
			text = fmt.Sprintf("%s/%d ack", s.ID, s.Count)
		} else if s.Ran {
			text += ", ran"
		}
		texts = append(texts, text)
	}
	return texts
}

func (c *claimed) is(what string, err, want error) {
	c.t.Helper()
	if !errors.Is(err, want) {
		c.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// out checks how many are out, by the Gate too.
func (c *claimed) out(want int) {
	c.t.Helper()
	if c.ds.Out() != want || c.gate.Out() != want || c.gate.OutBytes() != 10*int64(want) {
		c.t.Errorf("%d are out, %d and %d bytes by the gate, want %d", c.ds.Out(), c.gate.Out(), c.gate.OutBytes(), want)
	}
}

// TestDeliveriesComeAgain: what comes again while it is here, or is finished, is not handed out, and its settle goes by the
// newest delivery; what was given back is, and then the give-back is not sent any more.
func TestDeliveriesComeAgain(t *testing.T) {
	inClaim(t, func(c *claimed) {
		a, b := c.come("a", 1), c.come("b", 1)
		c.out(2)
		if c.come("a", 2) != 0 {
			t.Error("it was handed out while it is out")
		}
		c.is("Ack", c.ds.Ack([]uint64{a}), nil)
		if c.come("a", 3) != 0 {
			t.Error("it was handed out while its ack is not sent")
		}
		c.send("a/3 ack")
		if c.come("a", 4) != 0 {
			t.Error("it was handed out when it is finished")
		}
		c.send("a/4 ack")
		_, err := c.back(b, 1)
		c.is("Nack", err, nil)
		again := c.come("b", 2)
		if again == 0 {
			t.Error("it was given back, and not handed out")
		}
		c.send()
		c.is("Ack", c.ds.Ack([]uint64{again}), nil)
		c.out(0)
		c.send("b/2 ack")
	})
}

// TestDeliveriesSentUnheard: the broker took a give-back, and its answer got lost; the message comes again by that, and with the
// same count, for no handler had it. The give-back is not sent once more: it would be taken for one of the delivery that is out.
func TestDeliveriesSentUnheard(t *testing.T) {
	inClaim(t, func(c *claimed) {
		a := c.come("a", 1)
		_, err := c.back(a, 0)
		c.is("Nack", err, nil)
		settles, _ := c.ds.Unsent(100)
		again := c.come("a", 1)
		if again == 0 {
			t.Error("it was given back, and not handed out")
		}
		c.ds.Again(settles)
		if n := c.send(); n != 0 {
			t.Errorf("%d are unconfirmed: it came again", n)
		}
		c.is("Ack", c.ds.Ack([]uint64{again}), nil)
		c.send("a/1 ack")
	})
}

// TestDeliveriesSettledTwice: what was settled is not settled again, and frees its budget once.
func TestDeliveriesSettledTwice(t *testing.T) {
	inClaim(t, func(c *claimed) {
		a, b := c.come("a", 1), c.come("b", 1)
		c.is("Ack", c.ds.Ack([]uint64{a, a}), broker.ErrSettled)
		_, err := c.back(a, 1)
		c.is("Nack of what was acked", err, broker.ErrSettled)
		c.out(1)
		_, err = c.back(b, 0)
		c.is("Nack", err, nil)
		c.is("Ack of what was given back", c.ds.Ack([]uint64{b}), broker.ErrSettled)
		c.out(0)
		c.send("a/1 ack", "b/1 back")
	})
}

// TestDeliveriesRuns: runs of what was given back are told when it comes again, and do not grow by who never ran it.
func TestDeliveriesRuns(t *testing.T) {
	inClaim(t, func(c *claimed) {
		for i, runs := range []int32{2, 2, 0, 0} {
			d, fresh := c.ds.Arrive("a", 10, int32(i+1), time.Now())
			if want := int32(min(2*i, 2)); !fresh || d.Runs != want {
				t.Errorf("delivery %d: fresh %v, %d runs, want %d", i+1, fresh, d.Runs, want)
			}
			token, _ := c.ds.HandOut(d)
			_, err := c.back(token, runs)
			c.is("Nack", err, nil)
		}
		c.send("a/4 back")
	})
}

// TestDeliveriesLate: of what somebody else may have by now a give-back is not sent, an ack is, and both say ErrLost.
func TestDeliveriesLate(t *testing.T) {
	inClaim(t, func(c *claimed) {
		a, b, kept := c.come("a", 1), c.come("b", 1), c.come("kept", 1)
		asAgain := c.come("again", 1)
		time.Sleep(leaseOfTests / 2)
		due, asked := c.ds.Due(), time.Now()
		for _, d := range due {
			if d.ID == "kept" {
				d.Lease.Renew(asked)
			}
		}
		c.come("again", 2)
		time.Sleep(leaseOfTests / 2)
		c.is("a late Ack", c.ds.Ack([]uint64{a}), broker.ErrLost)
		_, err := c.back(b, 1)
		c.is("a late Nack", err, broker.ErrLost)
		for _, d := range due {
			if d.ID == "b" {
				d.Lease.Renew(asked) // the answer comes now, and what was said stands
			}
		}
		c.is("Ack of one that was extended", c.ds.Ack([]uint64{kept}), nil)
		c.is("Ack of one that came again", c.ds.Ack([]uint64{asAgain}), nil)
		c.out(0)
		if n := c.send("a/1 ack", "kept/1 ack", "again/2 ack"); n != 0 {
			t.Errorf("%d are unconfirmed, and none of those said nil", n)
		}
		d, fresh := c.ds.Arrive("b", 10, 2, time.Now())
		if !fresh || d.Runs != 1 {
			t.Errorf("what came again after its lease: fresh %v, %d runs", fresh, d.Runs)
		}
		time.Sleep(leaseOfTests)
		if _, ok := c.ds.HandOut(d); ok {
			t.Error("it was handed out after its lease")
		}
		c.send() // nor is it given back
	})
}

// TestDeliveriesUnconfirmed: a settle that said nil, and was not sent while the message was here, is told of: once, however it
// ends.
func TestDeliveriesUnconfirmed(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(c *claimed) int64
		want int64
	}{
		"late":      {func(c *claimed) int64 { time.Sleep(leaseOfTests); return c.send("a/1 ack") }, 2},
		"in time":   {func(c *claimed) int64 { return c.send("a/1 ack", "b/1 back") }, 0},
		"abandoned": {func(c *claimed) int64 { return c.ds.Abandon() + c.send() }, 2},
		"failed": {func(c *claimed) int64 {
			settles, _ := c.ds.Unsent(1)
			c.ds.Again(settles)
			return c.send("a/1 ack", "b/1 back")
		}, 0},
		"failed, then late": {func(c *claimed) int64 {
			settles, _ := c.ds.Unsent(100)
			time.Sleep(leaseOfTests)
			c.ds.Again(settles)
			return c.send("a/1 ack") + c.ds.Abandon()
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inClaim(t, func(c *claimed) {
				a, b := c.come("a", 1), c.come("b", 1)
				c.is("Ack", c.ds.Ack([]uint64{a}), nil)
				_, err := c.back(b, 0)
				c.is("Nack", err, nil)
				if got := tc.end(c); got != tc.want {
					t.Errorf("%d are unconfirmed, want %d", got, tc.want)
				}
			})
		})
	}
}

// TestDeliveriesExtended: all that is here is extended, that which is settled and not sent too; not what is gone or lost.
func TestDeliveriesExtended(t *testing.T) {
	inClaim(t, func(c *claimed) {
		for _, id := range []string{"out", "acked", "gone", "lost"} {
			if token := c.come(id, 1); id == "acked" {
				c.is("Ack", c.ds.Ack([]uint64{token}), nil)
			}
		}
		due := func() (ids []string) {
			for _, d := range c.ds.Due() {
				ids = append(ids, d.ID)
			}
			slices.Sort(ids)
			return ids
		}
		if ids := due(); len(ids) > 0 {
			t.Errorf("%v are to be extended at once", ids)
		}
		time.Sleep(leaseOfTests / 2)
		for _, d := range c.ds.Due() {
			switch d.ID {
			case "gone":
				d.Gone = true
			case "lost":
				d.Lease.Lose(time.Now())
			}
		}
		if ids := due(); !slices.Equal(ids, []string{"acked", "out"}) {
			t.Errorf("%v are to be extended", ids)
		}
	})
}

// TestDeliveriesGone: what the broker has dropped nobody else can have, so its settles are in time, and a give-back of it is
// counted.
func TestDeliveriesGone(t *testing.T) {
	inClaim(t, func(c *claimed) {
		a, b := c.come("a", 1), c.come("b", 1)
		time.Sleep(leaseOfTests / 2)
		for _, d := range c.ds.Due() {
			d.Gone = true
		}
		time.Sleep(leaseOfTests)
		c.is("Ack", c.ds.Ack([]uint64{a}), nil)
		gone, err := c.back(b, 1)
		if c.is("Nack", err, nil); gone != 1 {
			t.Errorf("%d are gone, want 1", gone)
		}
		if n := c.send("a/1 ack"); n != 0 {
			t.Errorf("%d are unconfirmed", n)
		}
		// It was not gone after all.
		again := c.come("b", 2)
		time.Sleep(leaseOfTests / 2)
		c.ds.Due()[0].Gone = true
		c.come("b", 3)
		time.Sleep(leaseOfTests)
		c.is("Ack, a lease after it came", c.ds.Ack([]uint64{again}), broker.ErrLost)
	})
}

// TestDeliveriesFenced: when the claim is over settles say ErrLost, and free their budget; what was settled before is sent, and
// what arrives goes back.
func TestDeliveriesFenced(t *testing.T) {
	inClaim(t, func(c *claimed) {
		before, a, b := c.come("before", 1), c.come("a", 1), c.come("b", 1)
		c.is("Ack", c.ds.Ack([]uint64{before}), nil)
		if c.ds.Fenced() || !c.ds.Fence() || c.ds.Fence() || !c.ds.Fenced() {
			t.Error("it is not the first Fence that fences")
		}
		c.out(2)
		c.is("Ack", c.ds.Ack([]uint64{a, before}), broker.ErrLost)
		_, err := c.back(b, 1)
		c.is("Nack", err, broker.ErrLost)
		c.out(0)
		if c.come("c", 1) != 0 {
			t.Error("it was handed out under a claim that is over")
		}
		c.send("before/1 ack", "c/1 back")
	})
}

// TestDeliveriesAtRandom: whatever comes, is settled, extended, sent and lost in between, on a broker that gives a message to
// another when its lease is over: nothing is out twice at a time, the gate counts what is out, and what was acked in time and
// confirmed does not come again.
func TestDeliveriesAtRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var gate kit.Gate
		gate.SetBudget(broker.Budget{Messages: 1 << 20, Bytes: 1 << 40})
		ds := kit.NewDeliveries[int](time.Hour, &gate)
		out := map[uint64]int{} // by token
		isOut, acked, counts := map[int]bool{}, map[int]bool{}, map[int]int32{}
		pick := func(t *rapid.T) uint64 {
			if len(out) == 0 {
				t.Skip("nothing is out")
			}
			var tokens []uint64
			for token := range out {
				tokens = append(tokens, token)
			}
			slices.Sort(tokens)
			return rapid.SampledFrom(tokens).Draw(t, "token")
		}
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				id := rapid.IntRange(0, 5).Draw(t, "id")
				counts[id]++
				d, fresh := ds.Arrive(id, 7, counts[id], time.Now())
				switch {
				case fresh && isOut[id]:
					t.Fatalf("%d is fresh, and out", id)
				case fresh && acked[id]:
					t.Fatalf("%d is fresh, and was acked", id)
				case !fresh && !isOut[id] && !acked[id]:
					t.Fatalf("%d is not fresh, and neither out nor acked", id)
				case fresh && rapid.Bool().Draw(t, "return"):
					ds.Return(d)
				case fresh:
					token, ok := ds.HandOut(d)
					if !ok || out[token] != 0 || token == 0 {
						t.Fatalf("%d was not handed out, or by a token twice: %d", id, token)
					}
					out[token], isOut[id] = id, true
				}
			},
			"ack": func(t *rapid.T) {
				token := pick(t)
				if err := ds.Ack([]uint64{token}); err != nil {
					t.Fatal(err)
				}
				acked[out[token]], isOut[out[token]] = true, false
				delete(out, token)
			},
			"nack": func(t *rapid.T) {
				token := pick(t)
				if _, err := ds.Nack([]broker.Back{{Token: token, Runs: 1}}); err != nil {
					t.Fatal(err)
				}
				isOut[out[token]] = false
				delete(out, token)
			},
			"send": func(t *rapid.T) {
				settles, unconfirmed := ds.Unsent(rapid.IntRange(1, 3).Draw(t, "n"))
				if rapid.Bool().Draw(t, "fails") {
					ds.Again(settles)
				} else {
					unconfirmed += ds.Sent(settles)
				}
				if unconfirmed != 0 {
					t.Fatalf("%d are unconfirmed, and no lease is over", unconfirmed)
				}
			},
			"": func(t *rapid.T) {
				if ds.Out() != len(out) || gate.Out() != len(out) || gate.OutBytes() != 7*int64(len(out)) {
					t.Fatalf("%d are out, by the gate %d with %d bytes, want %d", ds.Out(), gate.Out(), gate.OutBytes(), len(out))
				}
			},
		})
	})
}

// A broker that leases files by renaming them: what an adapter asks of Deliveries, from a pull to the settles.
func ExampleDeliveries() {
	var gate kit.Gate
	gate.SetBudget(broker.Budget{Messages: 10, Bytes: 1 << 20})
	ds := kit.NewDeliveries[string](30*time.Second, &gate)

	// Pulled: two files, one of them twice, since the answer to the first try got lost.
	asked := time.Now()
	var tokens []uint64
	for _, name := range []string{"a.json", "b.json", "a.json"} {
		d, fresh := ds.Arrive(name, 100, 1, asked)
		if !fresh {
			continue // it is out, and its lease counts anew
		}
		if token, ok := ds.HandOut(d); ok {
			tokens = append(tokens, token) // of the message that Receive returns
		}
	}
	fmt.Println(ds.Out(), "are out")

	// The engine settles them.
	err := ds.Ack(tokens[:1])
	gone, errBack := ds.Nack([]broker.Back{{Token: tokens[1], Runs: 1}})
	fmt.Println(err, errBack, gone)

	// The goroutine that sends.
	settles, _ := ds.Unsent(100)
	for _, s := range settles {
		if s.Acked {
			fmt.Println("remove", s.ID)
		} else {
			fmt.Println("rename", s.ID, "back")
		}
	}
	fmt.Println(ds.Sent(settles), "are unconfirmed")
	// Output:
	// 2 are out
	// <nil> <nil> 0
	// remove a.json
	// rename b.json back
	// 0 are unconfirmed
}

// HandOut returns what it does not hand out, and an adapter may think that this is left to it: a second give-back would take the
// message from whoever has it by then.
func TestReturnedOnce(t *testing.T) {
	inClaim(t, func(c *claimed) {
		d, _ := c.ds.Arrive("a", 10, 1, time.Now())
		c.ds.Fence()
		if _, ok := c.ds.HandOut(d); ok {
			t.Error("handed out under a claim that has ended")
		}
		c.ds.Return(d)
		c.send("a/1 back")
	})
}

func TestLapsed(t *testing.T) {
	inClaim(t, func(c *claimed) {
		a, b := c.come("a", 1), c.come("b", 1)
		lapsed := func(when string, token uint64, want bool) {
			t.Helper()
			if got := c.ds.Lapsed(token); got != want {
				t.Errorf("%s: lapsed is %v, want %v", when, got, want)
			}
		}
		time.Sleep(leaseOfTests / 2)
		c.come("b", 2) // delivered again: its lease counts anew
		lapsed("within its lease", a, false)
		time.Sleep(leaseOfTests / 2)
		lapsed("when its lease is over", a, true)
		lapsed("when it came again", b, false)
		_ = c.ds.Ack([]uint64{a})
		lapsed("when it is settled", a, false)
	})
}

// What the broker has dropped is nobody else's.
func TestLapsedAndGone(t *testing.T) {
	inClaim(t, func(c *claimed) {
		d, _ := c.ds.Arrive("a", 10, 1, time.Now())
		token, _ := c.ds.HandOut(d)
		d.Gone = true
		time.Sleep(2 * leaseOfTests)
		if c.ds.Lapsed(token) {
			t.Error("what is gone from the broker has lapsed")
		}
	})
}

// What the broker refused is told where its settle said nil, and what was acked of it is acked again when it comes here.
func TestRefused(t *testing.T) {
	inClaim(t, func(c *claimed) {
		tokens := []uint64{c.come("a", 1), c.come("b", 1)}
		_ = c.ds.Ack(tokens[:1])
		_, _ = c.back(tokens[1], 1)
		settles, _ := c.ds.Unsent(100)
		if n := c.ds.Refused(settles); n != 2 {
			t.Errorf("%d settles are unconfirmed, want 2", n)
		}
		if c.come("a", 2) != 0 {
			t.Error("what was acked is handed out again, though it is known")
		}
		c.send("a/2 ack")
		if c.come("b", 2) == 0 {
			t.Error("what was given back does not come again")
		}
	})
}

// When all is lost, settles say so, acks are sent still, what waits to be given back is not, and what comes again is ours again.
func TestLoseAll(t *testing.T) {
	inClaim(t, func(c *claimed) {
		var tokens []uint64
		for _, id := range []string{"acked", "back", "out", "out again"} {
			tokens = append(tokens, c.come(id, 1))
		}
		_ = c.ds.Ack(tokens[:1])
		_, _ = c.back(tokens[1], 1)
		time.Sleep(time.Second)
		c.ds.LoseAll()
		time.Sleep(time.Second)
		if c.come("out again", 2) != 0 {
			t.Error("what is out was handed out again")
		}
		if err := c.ds.Ack(tokens[2:3]); !errors.Is(err, broker.ErrLost) {
			t.Errorf("an ack of what is lost says %v, want ErrLost", err)
		}
		if err := c.ds.Ack(tokens[3:]); err != nil {
			t.Errorf("an ack of what has come again says %v", err)
		}
		if n := c.send("acked/1 ack", "out/1 ack", "out again/2 ack"); n != 2 {
			t.Errorf("%d settles are unconfirmed, want the ack and the give-back", n)
		}
	})
}
