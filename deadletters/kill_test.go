package deadletters

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// A dropped publisher stops the process at a moment of its own: what it says of a publish is never heard.
type dropped struct {
	broker.Publisher
	topic string
	after int  // publishes to topic that go well
	lost  bool // the next one is not stored
	n     int
}

var errKilled = errors.New("killed")

// Publish panics with errKilled when its moment has come.
func (d *dropped) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if ms[0].Topic != d.topic {
		return d.Publisher.Publish(ctx, ms)
	}
	if d.n++; d.n <= d.after {
		return d.Publisher.Publish(ctx, ms)
	}
	if !d.lost {
		_ = d.Publisher.Publish(ctx, ms[:len(ms)/2]) // half of it gets there
	}
	panic(errKilled)
}

// A process that is killed in the middle of a publish, again and again: nothing is gone, and nothing is there twice, since the
// next run looks.
func TestKilledReplayGoesOn(t *testing.T) {
	onBoth(t, func(t *testing.T, leased bool) {
		const letters = 60
		b := bench(t, leased, letters)
		var found, absent int
		for kill := 0; ; kill++ {
			l := open(t, b, &dropped{Publisher: noIDs{b.Publisher()}, topic: "orders", after: 1, lost: kill%3 == 2})
			sum, ended := replayUntilKilled(t, l, Replay{Allow: fromOrders, Batch: 8})
			found, absent = found+len(sum.Found), absent+len(sum.Absent)
			if len(sum.PerhapsTwice) != 0 {
				t.Errorf("perhaps twice: %v", sum.PerhapsTwice)
			}
			if ended {
				break
			}
			if kill > letters {
				t.Fatal("it does not get on")
			}
			if n := len(list(t, open(t, b, nil), Filter{State: Uncertain})); n == 0 || n > 8 {
				t.Errorf("%d letters are uncertain after a kill, want 1 to 8", n)
			}
		}
		wantOnce(t, copies(t, b, "orders"), letters)
		if found == 0 || absent == 0 {
			t.Errorf("%d letters were found and %d were absent: the kills do not bite", found, absent)
		}
	})
}

// late is a process whose clock is behind, and which is killed while a request is on its way: the broker has it a second later.
type late struct {
	broker.Publisher
	behind time.Duration
	kept   chan []broker.Outgoing
}

func (p late) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if ms[0].Topic == "orders" {
		p.kept <- ms
		panic(errKilled)
	}
	var r record
	if err := json.Unmarshal(ms[0].Value, &r); err != nil {
		return err
	}
	r.At = r.At.Add(-p.behind)
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ms = slices.Clone(ms)
	ms[0].Value = b
	return p.Publisher.Publish(ctx, ms)
}

// The next replay waits for what may be on its way by its own clock, whatever the time is where the killed one was.
func TestKilledWithAnotherClock(t *testing.T) {
	for _, behind := range []time.Duration{-time.Minute, 0, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := bench(t, false, 5)
			p := late{noIDs{b.Publisher()}, behind, make(chan []broker.Outgoing, 1)}
			replayUntilKilled(t, open(t, b, p), Replay{Allow: fromOrders})
			var way sync.WaitGroup
			way.Go(func() {
				time.Sleep(time.Second)
				if err := p.Publisher.Publish(t.Context(), <-p.kept); err != nil {
					t.Error(err)
				}
			})
			sum, err := open(t, b, noIDs{b.Publisher()}).Replay(t.Context(), Replay{Allow: fromOrders})
			if err != nil || len(sum.Found) != 5 {
				t.Errorf("%v behind: %+v %v", behind, sum, err)
			}
			way.Wait()
			wantOnce(t, copies(t, b, "orders"), 5)
		})
	}
}

// noIDs hides ids from the broker, which would drop copies by them, and keeps them for readers.
type noIDs struct{ broker.Publisher }

func (p noIDs) Publish(ctx context.Context, ms []broker.Outgoing) error {
	ms = slices.Clone(ms)
	for i := range ms {
		ms[i].Headers = append(slices.Clone(ms[i].Headers), broker.Header{Key: broker.HeaderID, Value: []byte(ms[i].ID)})
		ms[i].ID = ""
	}
	return p.Publisher.Publish(ctx, ms)
}

func replayUntilKilled(t *testing.T, l *Letters, o Replay) (sum Summary, ended bool) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil && p != errKilled {
			panic(p)
		}
	}()
	r := &replay{l: l, o: o.withDefaults()}
	err := r.prepare(t.Context())
	sum = r.sum
	if err == nil {
		err = r.run(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return sum, true
}

// Where the topic does not keep what it is given nobody can tell whether a letter arrived: it goes again, and is named.
func TestPerhapsTwiceIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, true, 10)
		replayUntilKilled(t, open(t, b, &dropped{Publisher: noIDs{b.Publisher()}, topic: "orders"}), Replay{Allow: fromOrders})
		l, err := New(Config{Topic: "dead", Store: forgetful{b.LogView()}, Publisher: noIDs{b.Publisher()}})
		if err != nil {
			t.Fatal(err)
		}
		sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders})
		if err != nil || sum.Replayed != 10 || len(sum.PerhapsTwice) != 10 || len(sum.Found)+len(sum.Absent) != 0 {
			t.Fatalf("%+v %v", sum, err)
		}
		named := map[broker.Place]bool{}
		for _, p := range sum.PerhapsTwice {
			named[p] = true
		}
		for _, x := range list(t, l, Filter{}) {
			if copies(t, b, "orders")[string(x.Message.Value)] != 1 && !named[x.Place] {
				t.Errorf("letter %v is there twice, and it was not said", x.Place)
			}
			if !x.PerhapsTwice || x.State != Replayed {
				t.Errorf("letter %v is listed as %s, perhaps twice: %v", x.Place, x.State, x.PerhapsTwice)
			}
		}
	})
}

// forgetful has nothing of what was replayed, as a work queue whose consumers have acked it.
type forgetful struct{ *membroker.LogView }

func (f forgetful) Scan(ctx context.Context, s broker.Scan, each func(*broker.Message) error) (broker.Scanned, error) {
	if s.Topic == "orders" {
		return broker.Scanned{Log: "orders"}, nil
	}
	return f.LogView.Scan(ctx, s, each)
}

// A replay with Again that is killed goes on, too, and when it got to its end the next one begins anew.
func TestKilledAgainGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, true, 20)
		if sum, err := open(t, b, noIDs{b.Publisher()}).Replay(t.Context(), Replay{Allow: fromOrders}); err != nil ||
			sum.Replayed != 20 {
			t.Fatalf("%+v %v", sum, err)
		}
		for kill := range 2 {
			_, ended := replayUntilKilled(t, open(t, b, &dropped{Publisher: noIDs{b.Publisher()}, topic: "orders", after: 1}),
				Replay{Allow: fromOrders, Again: true, Batch: 4})
			if ended {
				t.Fatalf("kill %d is late", kill)
			}
		}
		l := open(t, b, noIDs{b.Publisher()})
		if sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Again: true}); err != nil || len(sum.PerhapsTwice) != 0 {
			t.Fatalf("%+v %v", sum, err)
		}
		for v, n := range copies(t, b, "orders") {
			if n != 2 {
				t.Errorf("%s is there %d times", v, n)
			}
		}
		if sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Again: true, Limit: 3}); err != nil || sum.Replayed != 3 {
			t.Fatalf("%+v %v", sum, err)
		}
	})
}

// A replay with Again that was stopped goes on also where letters were named meanwhile, to be replayed again: these are, as often
// as they are named, and all others once.
func TestStoppedAgainGoesOnAfterNamedLetters(t *testing.T) {
	onBoth(t, func(t *testing.T, leased bool) {
		b := bench(t, leased, 20)
		l := open(t, b, noIDs{b.Publisher()})
		if sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders}); err != nil || sum.Replayed != 20 {
			t.Fatalf("%+v %v", sum, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		sum, err := l.Replay(ctx, Replay{Allow: fromOrders, Again: true, Batch: 4, OnProgress: func(done, _ int64) {
			if done == 8 {
				stop()
			}
		}})
		if err != nil || !sum.Stopped || sum.Replayed != 8 {
			t.Fatalf("%+v %v", sum, err)
		}
		all := list(t, l, Filter{})
		for _, x := range []*Letter{all[0], all[0], all[19]} { // replayed again before the stop, and not
			sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Again: true, Filter: Filter{Places: []broker.Place{x.Place}}})
			if err != nil || sum.Replayed != 1 {
				t.Errorf("letter %s was named: %+v %v", FormatPlace(x.Place), sum, err)
			}
		}
		for _, want := range []int64{11, 20} { // when it has come to its end, the next one begins anew
			if sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Again: true}); err != nil || sum.Replayed != want {
				t.Errorf("it has replayed %d of the others, want %d: %v", sum.Replayed, want, err)
			}
		}
	})
}

// What a replay with Again has published is not published by the next one with Again, whichever replay found it there.
func TestKilledAgainIsFoundByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, true, 20)
		l := open(t, b, noIDs{b.Publisher()})
		if sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders}); err != nil || sum.Replayed != 20 {
			t.Fatalf("%+v %v", sum, err)
		}
		if _, ended := replayUntilKilled(t, open(t, b, &dropped{Publisher: noIDs{b.Publisher()}, topic: "orders", after: 1}),
			Replay{Allow: fromOrders, Again: true, Batch: 4}); ended {
			t.Fatal("the kill is late")
		}
		if sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders}); err != nil || len(sum.Found) != 2 {
			t.Fatalf("without Again: %+v %v", sum, err)
		}
		sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Again: true})
		if err != nil || sum.Replayed != 14 || len(sum.PerhapsTwice) != 0 {
			t.Errorf("%+v %v, want 14 replayed", sum, err)
		}
		for v, n := range copies(t, b, "orders") {
			if n != 2 {
				t.Errorf("%s is there %d times", v, n)
			}
		}
	})
}

// Handlers that ran when the process was killed run again, and that is said.
func TestKilledHandlersRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, false, 5)
		l := open(t, b, b.Publisher())
		r := &replay{l: l, o: Replay{HandlerName: "h", Handle: func(context.Context,
			*broker.Message) error {
			return nil
		}}.withDefaults()}
		if err := r.prepare(t.Context()); err != nil { // and the process dies after it has begun a letter
			t.Fatal(err)
		}
		x := list(t, l, Filter{})[1]
		if err := r.write(t.Context(), stepBegin, []pendingReplay{{letter: x, to: "h"}}); err != nil {
			t.Fatal(err)
		}
		sum, err := l.Replay(t.Context(), r.o)
		if err != nil || sum.Replayed != 5 || len(sum.PerhapsTwice) != 1 || sum.PerhapsTwice[0] != x.Place {
			t.Fatalf("%+v %v", sum, err)
		}
		if x, err := l.Get(t.Context(), x.Place); err != nil || !x.PerhapsTwice || x.State != Replayed {
			t.Errorf("%+v %v", x, err)
		}
	})
}

// A publish that is tried again since nobody confirmed it is named.
func TestTriedAgainIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, false, 3)
		p := &deaf{Publisher: noIDs{b.Publisher()}}
		sum, err := open(t, b, p).Replay(t.Context(), Replay{Allow: fromOrders, Filter: Filter{Class: "error"}})
		if err != nil || sum.Replayed != 2 || len(sum.PerhapsTwice) != 2 {
			t.Fatalf("%+v %v", sum, err)
		}
		for _, x := range list(t, open(t, b, nil), Filter{Class: "error"}) {
			if n := copies(t, b, "orders")[string(x.Message.Value)]; n != 2 || !x.PerhapsTwice {
				t.Errorf("%d copies, perhaps twice: %v", n, x.PerhapsTwice)
			}
		}
	})
}

// deaf does not hear the first confirmation of a replay.
type deaf struct {
	broker.Publisher
	heard bool
}

func (d *deaf) Publish(ctx context.Context, ms []broker.Outgoing) error {
	err := d.Publisher.Publish(ctx, ms)
	if ms[0].Topic == "orders" && !d.heard {
		d.heard = true
		return errors.New("no confirmation within 5s")
	}
	return err
}

// An edited copy that was lost with its process is named: the letter itself is as it was.
func TestKilledEditIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, true, 3)
		x := list(t, open(t, b, nil), Filter{})[1]
		edit := Replay{Allow: fromOrders, Filter: Filter{Places: []broker.Place{x.Place}},
			Edit: func(o *broker.Outgoing) error { o.Value = []byte("mended"); return nil }}
		if _, ended := replayUntilKilled(t, open(t, b, &dropped{Publisher: b.Publisher(), topic: "orders", lost: true}), edit); ended {
			t.Fatal("the kill is late")
		}
		sum, err := open(t, b, b.Publisher()).Replay(t.Context(),
			Replay{Allow: fromOrders, Filter: Filter{Places: []broker.Place{x.Place}}, DryRun: true})
		if err != nil || sum.Chosen != 1 {
			t.Errorf("%+v %v", sum, err)
		}
		sum, err = open(t, b, b.Publisher()).Replay(t.Context(), edit)
		if err != nil || sum.Replayed != 1 || !slices.Equal(sum.LostEdits, []broker.Place{x.Place}) ||
			!slices.Equal(sum.Absent, sum.LostEdits) {
			t.Errorf("%+v %v", sum, err)
		}
		if n := copies(t, b, "orders"); n["mended"] != 1 || len(n) != 1 {
			t.Errorf("published: %v", n)
		}
	})
}
