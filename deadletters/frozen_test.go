package deadletters_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/deadletters"
)

var journalTopic = deadletters.JournalTopic("dead")

// A watched publisher tells before and after each record of the journal which step it is, and the how manieth of them. The ids of
// what is published are for readers only: the broker drops nothing by them.
type watched struct {
	broker.Publisher
	before, after func(step string, n int)
	n             map[string]int
}

func (p *watched) Publish(ctx context.Context, ms []broker.Outgoing) error {
	ms = slices.Clone(ms)
	for i := range ms {
		ms[i].Headers = append(slices.Clone(ms[i].Headers), broker.Header{Key: broker.HeaderID, Value: []byte(ms[i].ID)})
		ms[i].ID = ""
	}
	if ms[0].Topic != journalTopic {
		return p.Publisher.Publish(ctx, ms)
	}
	var r struct{ Step string }
	if err := json.Unmarshal(ms[0].Value, &r); err != nil {
		return err
	}
	if p.n == nil {
		p.n = map[string]int{}
	}
	p.n[r.Step]++
	if p.before != nil {
		p.before(r.Step, p.n[r.Step])
	}
	err := p.Publisher.Publish(ctx, ms)
	if p.after != nil {
		p.after(r.Step, p.n[r.Step])
	}
	return err
}

const frozenLetters = 15

// withLetters is a broker with dead letters, all of them from orders.
func withLetters(t *testing.T) *membroker.Broker {
	t.Helper()
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 2, "dead": 3}})
	for n := range frozenLetters {
		err := b.Produce(broker.Outgoing{Topic: "dead", Key: fmt.Append(nil, n), Value: fmt.Append(nil, n),
			Headers: []broker.Header{{Key: broker.HeaderOriginalTopic, Value: []byte("orders")}}, ID: fmt.Sprint(n)})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func replayAll(t *testing.T, s deadletters.Store, p broker.Publisher, batch int) (deadletters.Summary, error) {
	t.Helper()
	l, err := deadletters.New(deadletters.Config{Topic: "dead", Store: s, Publisher: p})
	if err != nil {
		t.Error(err)
		return deadletters.Summary{}, err
	}
	return l.Replay(t.Context(), deadletters.Replay{Batch: batch, Allow: func(string) bool { return true }})
}

// wantEachOnce wants each letter published once, and none named as perhaps there twice.
func wantEachOnce(t *testing.T, b *membroker.Broker) {
	t.Helper()
	copies := map[string]int{}
	_, err := b.LogView().Scan(t.Context(), broker.Scan{Topic: "orders"},
		func(m *broker.Message) error { copies[string(m.Value)]++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	l, err := deadletters.New(deadletters.Config{Topic: "dead", Store: b.LogView()})
	if err != nil {
		t.Fatal(err)
	}
	err = l.List(t.Context(), deadletters.Filter{}, func(x *deadletters.Letter) error {
		if n := copies[string(x.Message.Value)]; n != 1 || x.State != deadletters.Replayed || x.PerhapsTwice {
			t.Errorf("letter %s is there %d times; %s, perhaps twice: %v", x.Message.Value, n, x.State, x.PerhapsTwice)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A stale store shows of the journal what it had at a moment, as a broker does that does not know yet that another one leads it.
type stale struct {
	*membroker.LogView
	end   int64 // of what it shows
	until time.Time
}

func (s *stale) Scan(ctx context.Context, q broker.Scan, each func(*broker.Message) error) (broker.Scanned, error) {
	return s.LogView.Scan(ctx, q, func(m *broker.Message) error {
		if q.Topic == journalTopic && m.Offset >= s.end && time.Now().Before(s.until) {
			return broker.ErrStopScan
		}
		return each(m)
	})
}

// A replay that is frozen before it begins a batch finds, when it goes on, a broker that shows the journal as it was: it
// publishes nothing, since another one may have begun meanwhile.
func TestFrozenReplaySeesAnOlderJournal(t *testing.T) {
	for name, c := range map[string]struct {
		lasts time.Duration
		taken bool
	}{
		"for good": {time.Hour, false}, "for a while": {10 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := withLetters(t)
				store := &stale{LogView: b.LogView()}
				first := &watched{Publisher: b.Publisher(), before: func(step string, n int) {
					if step != "begin" || n != 2 {
						return
					}
					if _, err := b.LogView().Scan(t.Context(), broker.Scan{Topic: journalTopic},
						func(m *broker.Message) error { store.end = m.Offset + 1; return nil }); err != nil {
						t.Error(err)
					}
					if sum, err := replayAll(t, b.LogView(), &watched{Publisher: b.Publisher()}, 100); err != nil || sum.Replayed != 10 {
						t.Errorf("the other one: %+v %v", sum, err)
					}
					store.until = time.Now().Add(c.lasts)
				}}
				sum, err := replayAll(t, store, first, 5)
				if err == nil || sum.Replayed != 5 || errors.Is(err, deadletters.ErrTaken) != c.taken {
					t.Errorf("%+v %v", sum, err)
				}
				wantEachOnce(t, b)
			})
		})
	}
}

// The record with which a replay began is stored once more, late, since its first publish was not confirmed and was tried again.
// That does not make it the one that began last: it would go on with what another one has published.
func TestFrozenReplayIsNotBegunByACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := withLetters(t)
		var other deadletters.Summary
		first := &watched{Publisher: b.Publisher(), before: func(step string, n int) {
			if step != "begin" || n != 2 {
				return
			}
			var err error
			if other, err = replayAll(t, b.LogView(), &watched{Publisher: b.Publisher()}, 100); err != nil || other.Replayed != 10 {
				t.Errorf("the other one: %+v %v", other, err)
			}
			var run broker.Outgoing
			if _, err := b.LogView().Scan(t.Context(), broker.Scan{Topic: journalTopic}, func(m *broker.Message) error {
				run = broker.Outgoing{Topic: journalTopic, Value: bytes.Clone(m.Value)}
				return broker.ErrStopScan
			}); err != nil {
				t.Error(err)
			}
			if err := b.Produce(run); err != nil {
				t.Error(err)
			}
		}}
		sum, err := replayAll(t, b.LogView(), first, 5)
		if sum.Replayed != 5 || !errors.Is(err, deadletters.ErrTaken) || !strings.Contains(fmt.Sprint(err), other.Run) {
			t.Errorf("%+v %v, want it taken by %s", sum, err, other.Run)
		}
		wantEachOnce(t, b)
	})
}

// A replay is frozen before it writes down that it begins a batch, and another one takes over. When it goes on it writes that
// down behind the other one's records, sees them, and publishes nothing: its letters are there once, and none is named.
func TestFrozenReplayBeginsInVain(t *testing.T) {
	for _, when := range []string{"run", "begin", "done"} { // of the other one
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %s, killed %v", when, killed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := withLetters(t)
					frozen, thaw, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
					first := &watched{Publisher: b.Publisher(), before: func(step string, n int) {
						switch {
						case step == "begin" && n == 2:
							close(frozen)
							<-thaw
						case step == "undone" && killed:
							panic(errGone)
						}
					}}
					go func() {
						defer close(ended)
						defer func() {
							if p := recover(); p != nil && p != errGone {
								panic(p)
							}
						}()
						if sum, err := replayAll(t, b.LogView(), first, 5); sum.Replayed != 5 || !errors.Is(err, deadletters.ErrTaken) {
							t.Errorf("the frozen one: %+v %v", sum, err)
						}
					}()
					<-frozen
					other := &watched{Publisher: b.Publisher(), after: func(step string, _ int) {
						if step == when {
							close(thaw)
							<-ended
						}
					}}
					sum, err := replayAll(t, b.LogView(), other, 100)
					if err != nil || sum.Replayed != 10 || len(sum.PerhapsTwice)+len(sum.Found)+len(sum.Absent) != 0 {
						t.Errorf("the other one: %+v %v", sum, err)
					}
					wantEachOnce(t, b)
					sum, err = replayAll(t, b.LogView(), &watched{Publisher: b.Publisher()}, 100)
					if err != nil || sum.Before != frozenLetters || len(sum.PerhapsTwice)+len(sum.Found)+len(sum.Absent) != 0 {
						t.Errorf("the next one: %+v %v", sum, err)
					}
					wantEachOnce(t, b)
				})
			})
		}
	}
}

// A replay is frozen for so long that all that another one wrote down is gone again from a journal that has a limit, or all but
// its end: it publishes nothing, and says why.
func TestFrozenReplayWhoseJournalLostRecords(t *testing.T) {
	for name, keep := range map[string]int64{"all": 0, "all but the last": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := withLetters(t)
				first := &watched{Publisher: b.Publisher(), before: func(step string, n int) {
					if step != "begin" || n != 2 {
						return
					}
					sum, err := replayAll(t, b.LogView(), &watched{Publisher: b.Publisher()}, 100)
					if err != nil || sum.Replayed != 10 {
						t.Errorf("the other one: %+v %v", sum, err)
					}
					var gone []broker.Place
					if _, err := b.LogView().Scan(t.Context(), broker.Scan{Topic: journalTopic}, func(m *broker.Message) error {
						gone = append(gone, broker.Place{Partition: m.Partition, Offset: m.Offset})
						return nil
					}); err != nil {
						t.Error(err)
					}
					if err := b.LogView().Remove(t.Context(), journalTopic, gone[:int64(len(gone))-keep]); err != nil {
						t.Error(err)
					}
				}}
				sum, err := replayAll(t, b.LogView(), first, 5)
				if err == nil || sum.Replayed != 5 || !strings.Contains(err.Error(), "gone from it that were not read") {
					t.Errorf("%+v %v", sum, err)
				}
				n := 0
				if _, err := b.LogView().Scan(t.Context(), broker.Scan{Topic: "orders"},
					func(*broker.Message) error { n++; return nil }); err != nil || n != frozenLetters {
					t.Errorf("%d were published, want %d: %v", n, frozenLetters, err)
				}
			})
		})
	}
}

// A broker that shows the journal as it was before the replay began is no other replay.
func TestReplayThatDoesNotSeeItselfBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := withLetters(t)
		if _, err := replayAll(t, b.LogView(), &watched{Publisher: b.Publisher()}, 100); err != nil {
			t.Fatal(err)
		}
		store := &stale{LogView: b.LogView(), end: 3, until: time.Now().Add(time.Hour)}
		_, err := replayAll(t, store, &watched{Publisher: b.Publisher()}, 100)
		if err == nil || errors.Is(err, deadletters.ErrTaken) || !strings.Contains(err.Error(), "shows an older state") {
			t.Error(err)
		}
	})
}

var errGone = errors.New("killed")

// A late publisher freezes before its second publish of letters, and goes on with it when it is told to.
type late struct {
	broker.Publisher
	frozen, thaw, stored chan struct{}
	deaf                 bool // and nobody hears whether that was stored
	n                    int
}

func (p *late) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if ms[0].Topic == journalTopic {
		return p.Publisher.Publish(ctx, ms)
	}
	if p.n++; p.n != 2 {
		return p.Publisher.Publish(ctx, ms)
	}
	close(p.frozen)
	<-p.thaw
	err := p.Publisher.Publish(context.WithoutCancel(ctx), ms)
	close(p.stored)
	if p.deaf {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// A replay is frozen after it has looked and before it publishes. The other one does not find its letters, and publishes them,
// too, edited or again. They are there twice, whichever of the two says first that it is done, and that is named.
func TestFrozenReplayPublishesLate(t *testing.T) {
	const batch = 5
	edit := func(o *broker.Outgoing) error { o.Key = []byte("edited"); return nil }
	for name, other := range map[string]deadletters.Replay{"as it is": {}, "edited": {Edit: edit}, "again": {Again: true}} {
		for _, when := range []string{"begin", "done", "end"} { // before which record of the other one it goes on
			for _, deaf := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, before %s, deaf %v", name, when, deaf), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := withLetters(t)
						first := &late{&watched{Publisher: b.Publisher()}, make(chan struct{}), make(chan struct{}), make(chan struct{}), deaf, 0}
						ended := make(chan deadletters.Summary)
						go func() {
							sum, err := replayAll(t, b.LogView(), first, batch)
							if err == nil {
								t.Errorf("the frozen one: %+v", sum)
							}
							ended <- sum
						}()
						<-first.frozen
						var slow deadletters.Summary
						goOn := func() {
							close(first.thaw)
							if <-first.stored; !deaf {
								slow = <-ended
							}
						}
						p := &watched{Publisher: b.Publisher(), before: func(step string, _ int) {
							if step == when {
								goOn()
							}
						}}
						l, err := deadletters.New(deadletters.Config{Topic: "dead", Store: b.LogView(), Publisher: p})
						if err != nil {
							t.Fatal(err)
						}
						o := other
						o.Batch, o.Allow = 100, func(string) bool { return true }
						fast, err := l.Replay(t.Context(), o)
						if err != nil || len(fast.Absent) != batch {
							t.Errorf("the other one: %+v %v", fast, err)
						}
						if p.n[when] == 0 {
							goOn()
						}
						if deaf {
							slow = <-ended
						}
						var named []broker.Place
						if err := l.List(t.Context(), deadletters.Filter{}, func(x *deadletters.Letter) error {
							if x.PerhapsTwice {
								named = append(named, x.Place)
							}
							return nil
						}); err != nil {
							t.Fatal(err)
						}
						slices.SortFunc(fast.Absent, inOrder)
						if !slices.Equal(named, fast.Absent) {
							t.Errorf("named are %v, want %v", named, fast.Absent)
						}
						told := slices.Concat(slow.PerhapsTwice, fast.PerhapsTwice)
						slices.SortFunc(told, inOrder)
						if !slices.Equal(slices.Compact(told), fast.Absent) {
							t.Errorf("the summaries name %v and %v, want %v", slow.PerhapsTwice, fast.PerhapsTwice, fast.Absent)
						}
					})
				})
			}
		}
	}
}

func inOrder(a, b broker.Place) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}
