package deadletters

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// deadLetter is one as the engine writes it.
func deadLetter(n int, more ...broker.Header) broker.Outgoing {
	at := time.Now().UTC().Format(time.RFC3339Nano)
	hs := []broker.Header{
		{Key: "Trace", Value: []byte(fmt.Sprint("t", n))},
		{Key: broker.HeaderOriginalTopic, Value: []byte("orders")}, {Key: broker.HeaderOriginalPartition, Value: []byte("0")},
		{Key: broker.HeaderOriginalOffset, Value: []byte(fmt.Sprint(100 + n))}, {Key: broker.HeaderAttempts, Value: []byte("5")},
		{Key: broker.HeaderLastFailure, Value: []byte(at)}, {Key: broker.HeaderFirstFailure, Value: []byte(at)},
		{Key: broker.HeaderErrorClass, Value: []byte([]string{"error", "permanent"}[n%2])}, {Key: broker.HeaderError,
			Value: []byte("no \x1b[31mluck")},
		{Key: broker.HeaderHandler, Value: []byte("orders")},
	}
	return broker.Outgoing{Topic: "dead", Key: []byte(fmt.Sprint("k", n%3)), Value: []byte(fmt.Sprint(n)),
		Headers: append(hs, more...), ID: fmt.Sprint("letter", n)}
}

// fromOrders allows what deadLetter says.
func fromOrders(topic string) bool { return topic == "orders" }

// bench is a broker with dead letters.
func bench(t *testing.T, leased bool, letters int) *membroker.Broker {
	t.Helper()
	b := membroker.New(membroker.Config{Leased: leased, Topics: map[string]int{"orders": 2, "dead": 3}})
	for n := range letters {
		if err := b.Produce(deadLetter(n)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func open(t *testing.T, b *membroker.Broker, p broker.Publisher) *Letters {
	t.Helper()
	l, err := New(Config{Topic: "dead", Store: b.LogView(), Publisher: p})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func list(t *testing.T, l *Letters, f Filter) (all []*Letter) {
	t.Helper()
	if err := l.List(t.Context(), f, func(x *Letter) error { all = append(all, x); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// copies is how often each payload is in a topic.
func copies(t *testing.T, b *membroker.Broker, topic string) map[string]int {
	t.Helper()
	n := map[string]int{}
	if _, err := b.LogView().Scan(t.Context(), broker.Scan{Topic: topic},
		func(m *broker.Message) error { n[string(m.Value)]++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func wantOnce(t *testing.T, have map[string]int, letters int) {
	t.Helper()
	for n := range letters {
		if have[fmt.Sprint(n)] != 1 {
			t.Errorf("letter %d is there %d times", n, have[fmt.Sprint(n)])
		}
	}
	if len(have) != letters {
		t.Errorf("%d different messages, want %d", len(have), letters)
	}
}

func onBoth(t *testing.T, test func(t *testing.T, leased bool)) {
	for name, leased := range map[string]bool{"partitioned": false, "leased": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, leased) }) })
	}
}

// Each letter is replayed once, by whichever filter, with its own headers and without those of the letter.
func TestReplayOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, leased bool) {
		b := bench(t, leased, 50)
		l := open(t, b, b.Publisher())
		first, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Filter: Filter{Class: "permanent"}, Batch: 7, By: "ann@bastion"})
		if err != nil || first.Replayed != 25 || first.Chosen != 25 || first.Before != 0 {
			t.Fatalf("%+v %v", first, err)
		}
		if n := len(list(t, l, Filter{State: Replayed})); n != 25 {
			t.Errorf("%d letters are replayed", n)
		}
		rest, err := l.Replay(t.Context(), Replay{Allow: fromOrders})
		if err != nil || rest.Replayed != 25 || rest.Before != 25 {
			t.Fatalf("%+v %v", rest, err)
		}
		for _, x := range list(t, l, Filter{}) {
			if want := map[string]string{"permanent": "ann@bastion"}[x.Class]; x.ReplayedBy != want {
				t.Errorf("%s was replayed by %q, want %q", FormatPlace(x.Place), x.ReplayedBy, want)
			}
		}
		wantOnce(t, copies(t, b, "orders"), 50)
		_, err = b.LogView().Scan(t.Context(), broker.Scan{Topic: "orders"}, func(m *broker.Message) error {
			h := map[string]string{}
			for k, v := range m.Headers.All() {
				h[k] = string(v)
			}
			if h["Trace"] != "t"+string(m.Value) || h[broker.HeaderReplays] != "1" || h[broker.HeaderErrorClass] != "" ||
				h[broker.HeaderOriginalTopic] != "" {
				t.Errorf("headers of %s: %q", m.Value, h)
			}
			if id := h[broker.HeaderID]; !strings.HasPrefix(id, "replay/dead/") {
				t.Errorf("%s has the id %q", m.Value, id)
			}
			if s := h[broker.HeaderHistory]; !strings.Contains(s, " attempts=5 handler=orders class=") ||
				!strings.Contains(s, ` error="no \x1b[31mluck"`) ||
				!strings.Contains(s, "original=orders/0/1") || !strings.HasPrefix(s, "letter=dead/") {
				t.Errorf("history of %s: %s", m.Value, s)
			}
			if string(m.Key) != "k"+fmt.Sprint(atoi(string(m.Value))%3) {
				t.Errorf("key of %s is %s", m.Value, m.Key)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		again, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Again: true, Limit: 4})
		if err != nil || again.Replayed != 4 {
			t.Fatalf("%+v %v", again, err)
		}
		if n := len(list(t, l, Filter{State: Waiting})); n != 0 {
			t.Errorf("%d letters wait", n)
		}
	})
}

// What is refused before it is published does not count for the limit: letters in front that are refused each time would else
// keep all others from being replayed.
func TestLimitCountsWhatIsPublished(t *testing.T) {
	onBoth(t, func(t *testing.T, leased bool) {
		b := bench(t, leased, 20)
		l := open(t, b, b.Publisher())
		var done, of int64
		o := Replay{Allow: fromOrders, Limit: 4, OnProgress: func(d, n int64) { done, of = d, n }}
		o.Edit = func(o *broker.Outgoing) error {
			if atoi(string(o.Value)) < 10 {
				return errors.New("no")
			}
			return nil
		}
		dry := o
		dry.DryRun = true
		for i, want := range []int64{4, 4, 2} {
			if sum, err := l.Replay(t.Context(), dry); err != nil || sum.Replayed != want {
				t.Errorf("%d: dry, %+v %v, want %d", i, sum, err, want)
			}
			sum, err := l.Replay(t.Context(), o)
			if err != nil || sum.Replayed != want || sum.Chosen != want+sum.Refused {
				t.Errorf("%d: %+v %v, want %d", i, sum, err, want)
			}
			if done != sum.Chosen || of != done {
				t.Errorf("%d: %d of %d are done, want all %d", i, done, of, sum.Chosen)
			}
		}
	})
}

func atoi(s string) (n int) { _, _ = fmt.Sscan(s, &n); return n }

// A message that comes back each time is refused when it was replayed as often as is allowed; a forged count does not make it
// more.
func TestReplaysEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, false, 0)
		l := open(t, b, b.Publisher())
		carried := []broker.Header(nil)
		for life := 0; ; life++ {
			if err := b.Produce(deadLetter(1000+life, carried...)); err != nil {
				t.Fatal(err)
			}
			sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, MaxReplays: 3})
			if err != nil {
				t.Fatal(err)
			}
			if life > 3 {
				t.Fatal("it goes round for ever")
			}
			if sum.Refused == 1 {
				if life != 3 || !errors.Is(sum.Refusals[0].Err, ErrReplays) ||
					!strings.Contains(sum.Refusals[0].Err.Error(), "3 times (the limit is 3)") {
					t.Errorf("refused after %d lives: %v", life, sum.Refusals)
				}
				return
			}
			carried = nil // as the engine does: the message's own headers stay
			_, _ = b.LogView().Scan(t.Context(), broker.Scan{Topic: "orders"}, func(m *broker.Message) error {
				if string(m.Value) == fmt.Sprint(1000+life) {
					for k, v := range m.Headers.All() {
						if !broker.IsLetterHeader(k) {
							carried = append(carried, broker.Header{Key: k, Value: v})
						}
					}
				}
				return nil
			})
		}
	})
}

// What a handler handles counts as replayed, what it does not stays.
func TestReplayToHandler(t *testing.T) {
	onBoth(t, func(t *testing.T, leased bool) {
		b := bench(t, leased, 12)
		l := open(t, b, b.Publisher())
		seen := make(chan string, 100)
		handle := func(_ context.Context, m *broker.Message) error {
			if m.Topic != "orders" || m.Offset != int64(100+atoi(string(m.Value))) {
				t.Errorf("%s comes as %s/%d", m.Value, m.Topic, m.Offset)
			}
			seen <- string(m.Value)
			switch string(m.Value) {
			case "3":
				return errors.New("still no luck")
			case "4":
				panic("ouch")
			case "5":
				runtime.Goexit()
			}
			return nil
		}
		sum, err := l.Replay(t.Context(), Replay{Handle: handle, HandlerName: "orders", Workers: 3})
		if err != nil || sum.Replayed != 9 || sum.Failed != 3 || len(sum.Refusals) != 3 {
			t.Fatalf("%+v %v", sum, err)
		}
		if n := len(seen); n != 12 {
			t.Errorf("%d handler runs", n)
		}
		if left := list(t, l, Filter{State: Waiting}); len(left) != 3 {
			t.Errorf("%d letters wait", len(left))
		}
		if n := len(copies(t, b, "orders")); n != 0 {
			t.Errorf("%d messages were published", n)
		}
	})
}

// The replay that began last goes on, the other one stops, and nothing is there twice.
func TestTwoReplays(t *testing.T) {
	onBoth(t, func(t *testing.T, leased bool) {
		b := bench(t, leased, 40)
		ended := make(chan error, 1)
		began := make(chan struct{})
		go func() {
			l := open(t, b, noIDs{b.Publisher()})
			first := true
			_, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Rate: 5, Batch: 5, OnProgress: func(int64, int64) {
				if first {
					close(began)
				}
				first = false
			}})
			ended <- err
		}()
		<-began
		sum, err := open(t, b, noIDs{b.Publisher()}).Replay(t.Context(), Replay{Allow: fromOrders, Batch: 5})
		if err != nil || sum.Replayed == 0 || sum.Replayed == 40 {
			t.Errorf("%+v %v", sum, err)
		}
		if err := <-ended; !errors.Is(err, ErrTaken) {
			t.Errorf("the first one ended with %v", err)
		}
		wantOnce(t, copies(t, b, "orders"), 40)
	})
}

// slow takes its time until the broker has what is published.
type slow struct {
	broker.Publisher
	topic string
	by    time.Duration
}

func (s slow) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if ms[0].Topic == s.topic {
		time.Sleep(s.by)
	}
	return s.Publisher.Publish(ctx, ms)
}

// A replay seems to hang, since its broker takes long, and another one is begun beside it, which finds nothing of the first one's
// batch and publishes it. What is there twice then is named.
func TestTwoReplaysOfWhichOneIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, false, 20)
		first, named := make(chan error, 1), 0
		go func() {
			sum, err := open(t, b, slow{noIDs{b.Publisher()}, "orders", 10 * time.Second}).Replay(t.Context(),
				Replay{Allow: fromOrders, Batch: 5})
			named = len(sum.PerhapsTwice)
			first <- err
		}()
		time.Sleep(time.Second)
		if sum, err := open(t, b, noIDs{b.Publisher()}).Replay(t.Context(), Replay{Allow: fromOrders}); err != nil ||
			len(sum.Absent) != 5 || sum.Replayed != 20 {
			t.Errorf("%+v %v", sum, err)
		}
		if err := <-first; !errors.Is(err, ErrTaken) || named != 5 {
			t.Errorf("the first one names %d letters that are there twice, and ended with %v", named, err)
		}
		twice := 0
		for _, x := range list(t, open(t, b, nil), Filter{}) {
			n := copies(t, b, "orders")[string(x.Message.Value)]
			if x.State != Replayed || x.PerhapsTwice != (n > 1) {
				t.Errorf("letter %v is there %d times; %s, perhaps twice: %v", x.Place, n, x.State, x.PerhapsTwice)
			}
			if n > 1 {
				twice++
			}
		}
		if twice != 5 {
			t.Errorf("%d letters are there twice, want 5", twice)
		}
	})
}

// The slow one has all of its letters in one batch: it looks once more at its end.
func TestTwoReplaysOfWhichOneEndsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, false, 5)
		first := make(chan Summary, 1)
		go func() {
			sum, err := open(t, b, slow{noIDs{b.Publisher()}, "orders", 10 * time.Second}).Replay(t.Context(),
				Replay{Allow: fromOrders})
			if err != nil {
				t.Error(err)
			}
			first <- sum
		}()
		time.Sleep(time.Second)
		other := open(t, b, noIDs{b.Publisher()})
		if sum, err := other.Replay(t.Context(), Replay{Allow: fromOrders}); err != nil || sum.Replayed != 5 {
			t.Errorf("%+v %v", sum, err)
		}
		if sum := <-first; sum.Replayed != 5 || len(sum.PerhapsTwice) != 5 {
			t.Errorf("%+v", sum)
		}
	})
}

// A stop finishes what is on its way, and says that there is more.
func TestReplayStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, false, 30)
		ctx, cancel := context.WithCancel(t.Context())
		l := open(t, b, b.Publisher())
		sum, err := l.Replay(ctx, Replay{Allow: fromOrders, Rate: 10, OnProgress: func(done, of int64) {
			if of != 30 {
				t.Errorf("%d of %d", done, of)
			}
			if done == 12 {
				cancel()
			}
		}})
		if err != nil || !sum.Stopped || sum.Replayed != 12 {
			t.Fatalf("%+v %v", sum, err)
		}
		if n := len(list(t, l, Filter{State: Uncertain})); n != 0 {
			t.Errorf("%d letters are uncertain after a stop", n)
		}
		sum, err = l.Replay(t.Context(), Replay{Allow: fromOrders})
		if err != nil || sum.Replayed != 18 {
			t.Fatalf("%+v %v", sum, err)
		}
		wantOnce(t, copies(t, b, "orders"), 30)
	})
}

// A replay whose time is bounded uses it, and stops then as any other.
func TestReplayStopsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, false, 30)
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		sum, err := open(t, b, b.Publisher()).Replay(ctx, Replay{Allow: fromOrders, Rate: 1})
		if err != nil || !sum.Stopped || sum.Replayed != 5 {
			t.Errorf("%+v %v", sum, err)
		}
	})
}

// A dry run changes nothing, not even the journal.
func TestDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, false, 6)
		if err := b.Produce(broker.Outgoing{Topic: "dead", Value: []byte("of nobody")}); err != nil {
			t.Fatal(err)
		}
		l := open(t, b, nil)
		var would []string
		sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, DryRun: true, OnLetter: func(x *Letter, to string, refused error) {
			if refused == nil {
				would = append(would, to)
			} else if !errors.Is(refused, ErrNoOrigin) {
				t.Errorf("%v: %v", x.Place, refused)
			}
		}})
		if err != nil || sum.Replayed != 6 || sum.Refused != 1 || len(would) != 6 || would[0] != "orders" {
			t.Fatalf("%+v %v %q", sum, err, would)
		}
		if _, err := b.LogView().Scan(t.Context(), broker.Scan{Topic: JournalTopic("dead")}, nil); !errors.Is(err, broker.ErrNoTopic) {
			t.Errorf("there is a journal: %v", err)
		}
		if n := len(copies(t, b, "orders")); n != 0 {
			t.Errorf("%d messages were published", n)
		}
	})
}

// While somebody looks at a plan the topic is deleted and made again, and other letters stand at its places: they stay.
func TestPurgeKeepsToItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, true, 3)
		l := open(t, b, nil)
		plan, err := l.PlanPurge(t.Context(), Filter{})
		if err != nil || len(plan.Places) != 3 {
			t.Fatalf("%+v %v", plan, err)
		}
		if err := b.Recreate("dead"); err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			if err := b.Produce(deadLetter(10 + n)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Purge(t.Context(), plan); !errors.Is(err, ErrAnew) {
			t.Errorf("the purge says %v", err)
		}
		if n := len(list(t, l, Filter{})); n != 3 {
			t.Errorf("%d of the new letters are left, want 3", n)
		}
		if again, err := l.PlanPurge(t.Context(), Filter{}); err != nil || again.Sum() == plan.Sum() {
			t.Errorf("the plans of two logs have one sum, or %v", err)
		}
	})
}

// An edited copy counts as the letter's replay, and what was replayed can be purged by that.
func TestEditAndPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, true, 5)
		l := open(t, b, b.Publisher())
		all := list(t, l, Filter{})
		edit := Replay{Allow: fromOrders, Filter: Filter{Places: []broker.Place{all[2].Place}},
			Edit: func(o *broker.Outgoing) error { o.Value = []byte("mended"); return nil }}
		if sum, err := l.Replay(t.Context(), edit); err != nil || sum.Replayed != 1 {
			t.Fatalf("%+v %v", sum, err)
		}
		if n := copies(t, b, "orders"); n["mended"] != 1 || len(n) != 1 {
			t.Errorf("published: %v", n)
		}
		x, err := l.Get(t.Context(), all[2].Place)
		if err != nil || x.State != Replayed || !x.Edited || x.ReplayedTo != "orders" {
			t.Errorf("%+v %v", x, err)
		}
		plan, err := l.PlanPurge(t.Context(), Filter{State: Replayed})
		if err != nil || plan.Letters != 1 || plan.Waiting != 0 {
			t.Fatalf("%+v %v", plan, err)
		}
		if err := l.Purge(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		if n := len(list(t, l, Filter{})); n != 4 {
			t.Errorf("%d letters are left", n)
		}
		if _, err := l.Get(t.Context(), all[2].Place); !errors.Is(err, ErrNoLetter) {
			t.Errorf("the purged letter: %v", err)
		}
	})
}

// An edited copy goes to where the journal says that its letter goes, and has the id by which it is looked for after a kill.
func TestEditKeepsTopicAndID(t *testing.T) {
	for name, edit := range map[string]func(*broker.Outgoing){
		"topic": func(o *broker.Outgoing) { o.Topic = "$JS.API.STREAM.DELETE.ORDERS" },
		"ID":    func(o *broker.Outgoing) { o.ID = "mine" },
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, leased bool) {
				b := bench(t, leased, 3)
				l := open(t, b, b.Publisher())
				sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Edit: func(o *broker.Outgoing) error { edit(o); return nil }})
				if err != nil || sum.Refused != 3 || sum.Replayed != 0 || !errors.Is(sum.Refusals[0].Err, ErrEdited) {
					t.Errorf("%+v %v", sum, err)
				}
				if n := len(list(t, l, Filter{State: Waiting})); n != 3 {
					t.Errorf("%d letters wait, want 3", n)
				}
			})
		})
	}
}
