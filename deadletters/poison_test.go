package deadletters

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// forge writes what anybody who may publish to the journal can.
func forge(t *testing.T, b *membroker.Broker, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := b.Produce(broker.Outgoing{Topic: JournalTopic("dead"), Value: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
}

// What is no record of a replay is passed over and told of, wherever it stands in the journal: letters are listed, replayed, and
// replayed once.
func TestUnreadableRecordsArePassedOver(t *testing.T) {
	onBoth(t, func(t *testing.T, leased bool) {
		b := bench(t, leased, 20)
		l := open(t, b, b.Publisher())
		junk := []string{
			"junk", "", "\x00\xff", `{"v":9}`, `{"v":1}`,
			`{"v":1,"step":"done","run":"` + strings.Repeat("x", 1<<16) + `","at":"2026-11-21T12:00:00Z"}`,
		}
		if sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Limit: 7}); err != nil || sum.Replayed != 7 ||
			sum.Unreadable.Count != 0 {
			t.Fatalf("%+v %v", sum, err)
		}
		forge(t, b, junk...)
		if n := len(list(t, l, Filter{State: Replayed})); n != 7 {
			t.Errorf("%d letters are replayed", n)
		}
		if u := l.Unreadable(); u.Count != 6 || u.Topic != JournalTopic("dead") || len(u.First) != 6 {
			t.Errorf("%+v", u)
		}
		sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Batch: 3, OnProgress: func(done, of int64) {
			if done == 3 {
				forge(t, b, "junk under way")
			}
		}})
		if err != nil || sum.Replayed != 13 || sum.Unreadable.Count != 7 {
			t.Errorf("%+v %v", sum, err)
		}
		wantOnce(t, copies(t, b, "orders"), 20)
		for range 100 {
			forge(t, b, "more junk")
		}
		list(t, l, Filter{})
		if u := l.Unreadable(); u.Count != 107 || len(u.First) != maxUnreadable {
			t.Errorf("%d, of which %d are named", u.Count, len(u.First))
		}
	})
}

// What a newer longshore has written down cannot be read: letters of which only that speaks would be published twice. They are
// listed, with a warning, and not replayed, nor does a replay go on beside it.
func TestRecordsOfANewerLongshoreEndAReplay(t *testing.T) {
	for name, record := range map[string]string{
		"a step":      `{"v":9,"step":"done","run":"future","at":"2026-11-21T12:00:00Z"}`,
		"other types": `{"v":9,"step":["done"],"letters":[1],"run":"future","at":"2026-11-21T12:00:00Z","twice":7}`,
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, leased bool) {
				b := bench(t, leased, 20)
				l := open(t, b, b.Publisher())
				sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Batch: 3, OnProgress: func(done, of int64) {
					if done == 6 {
						forge(t, b, record)
					}
				}})
				if err == nil || !strings.Contains(err.Error(), "newer longshore") || sum.Replayed != 6 {
					t.Errorf("beside it: %+v %v", sum, err)
				}
				sum, err = l.Replay(t.Context(), Replay{Allow: fromOrders})
				if err == nil || !strings.Contains(err.Error(), "newer longshore") || sum.Replayed != 0 {
					t.Errorf("after it: %+v %v", sum, err)
				}
				if n := len(copies(t, b, "orders")); n != 6 {
					t.Errorf("%d letters were published", n)
				}
				if n := len(list(t, l, Filter{State: Replayed})); n != 6 || l.Unreadable().Count != 1 {
					t.Errorf("%d letters are replayed, %+v", n, l.Unreadable())
				}
			})
		})
	}
}

// Small records that speak of many letters take little memory, to list and to replay.
func TestForgedSpansTakeNoMemory(t *testing.T) {
	b := bench(t, true, 3)
	l := open(t, b, b.Publisher())
	if err := l.Reach(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		forge(t, b, fmt.Sprintf(`{"v":1,"step":"begin","run":"a","at":"2026-11-21T12:00:00Z","log":%q,"letters":{"x":{"-1":[[%d,%d]]}`+
			`}}`, l.log, 1000+i*maxSpan, 1000+(i+1)*maxSpan))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if n := len(list(t, l, Filter{State: Waiting})); n != 3 {
		t.Errorf("%d letters wait", n)
	}
	sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders})
	if err != nil || sum.Replayed != 3 || len(sum.PerhapsTwice) != 0 {
		t.Errorf("%+v %v", sum, err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
		t.Errorf("%d MiB were allocated", used>>20)
	}
	wantOnce(t, copies(t, b, "orders"), 3)
}

// A journal that speaks of more than can be kept in bounded memory is refused, by name.
func TestJournalIsBounded(t *testing.T) {
	m := newMarks("L")
	err := error(nil)
	for i := 0; err == nil && i < maxStretches; i++ {
		var list [][2]int64
		for o := range int64(1000) {
			list = append(list, [2]int64{int64(i)*2000 + 2*o, int64(i)*2000 + 2*o + 1})
		}
		err = m.add(record{Version: 1, Step: stepBegin, Run: "a", At: moment, Log: "L", Letters: map[string]spans{"x": {"0": list}}})
	}
	if err == nil || m.n > maxStretches+1000 {
		t.Errorf("%v, %d stretches", err, m.n)
	}
}
