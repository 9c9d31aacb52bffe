package kit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

var errAway = errors.New("connection refused")

// listen returns a queue, and what it told.
func listen() (q *kit.EventQueue, told *[]string) {
	q, told = kit.NewEventQueue(), new([]string)
	start := time.Now()
	q.Observe(func(e broker.Event) { *told = append(*told, fmt.Sprint(time.Since(start), " ", e.Kind)) })
	return q, told
}

// TestStaleAnswer: an answer that was on its way when contact was lost is no contact. It said Up; the failures after it were not
// told, being within a second of the last one; and then the broker came back without a word.
func TestStaleAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		steps []string
		want  []broker.Kind
	}{
		"stale": {[]string{"begin", "fail", "answer", "fail", "begin", "answer"}, []broker.Kind{broker.Down, broker.Up}},
		"back":  {[]string{"fail", "begin", "answer"}, []broker.Kind{broker.Down, broker.Up}},
		"still down": {[]string{"begin", "fail", "answer", "second", "fail", "second", "fail", "answer"},
			[]broker.Kind{broker.Down, broker.Down}},
		"gone again later": {[]string{"fail", "begin", "answer", "second", "fail"}, []broker.Kind{broker.Down, broker.Up, broker.Down}},
		"first contact":    {[]string{"begin", "answer"}, []broker.Kind{broker.Up}},
		"no answer":        {[]string{"begin", "answer", "begin", "silence"}, []broker.Kind{broker.Up, broker.Down}},
		"no answer of before": {[]string{"begin", "fail", "ask", "found", "silence", "second", "silence"},
			[]broker.Kind{broker.Down, broker.Up}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []broker.Kind
				q := kit.NewEventQueue()
				q.Observe(func(e broker.Event) { got = append(got, e.Kind) })
				var began, later time.Time
				for _, step := range tc.steps {
					time.Sleep(time.Millisecond)
					switch step {
					case "begin":
						began = time.Now()
					case "ask":
						later = time.Now()
					case "answer":
						q.Found(began)
					case "found":
						q.Found(later)
					case "silence":
						q.Unanswered(began, errAway)
					case "fail":
						q.Lost(errAway)
					case "second":
						time.Sleep(time.Second)
					}
					q.Tell()
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("told %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// TestLateTeller: where whoever tells is held up, what it tells is right when it tells it: not two Downs of what came to pass
// meanwhile.
func TestLateTeller(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for name, tc := range map[string]struct {
		lost, found, tell []time.Duration
		want              []string
	}{
		"one outage": {[]time.Duration{0, 2500 * ms, 2600 * ms, 4600 * ms}, nil,
			[]time.Duration{2550 * ms, 2700 * ms, 4700 * ms}, []string{"2.55s down", "4.7s down"}},
		"two outages": {[]time.Duration{0, 1200 * ms}, []time.Duration{ms}, []time.Duration{1300 * ms, 2 * s, 2300 * ms},
			[]string{"1.3s down", "1.3s up", "2.3s down"}},
		"both over": {[]time.Duration{0, 1200 * ms}, []time.Duration{ms, 1250 * ms}, []time.Duration{1300 * ms, 3 * s},
			[]string{"1.3s down", "1.3s up"}},
		"over before a due": {[]time.Duration{0, 1200 * ms}, []time.Duration{ms, 2 * s}, []time.Duration{1300 * ms, 2100 * ms, 3 * s},
			[]string{"1.3s down", "1.3s up"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, told := listen()
				at := func(ds []time.Duration, f func()) {
					for _, d := range ds {
						time.AfterFunc(d, f)
					}
				}
				at(tc.lost, func() { q.Lost(errAway) })
				at(tc.found, func() { q.Found(time.Now()) })
				at(tc.tell, func() { q.Tell() })
				time.Sleep(time.Minute)
				synctest.Wait()
				if !slices.Equal(*told, tc.want) {
					t.Errorf("told %v, want %v", *told, tc.want)
				}
			})
		})
	}
}

// TestRun: what is said is told at once; a Down within a second of another when that is over; and what was said before the end.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, told := listen()
		ctx, end := context.WithCancel(context.Background())
		over := make(chan struct{})
		go func() { q.Run(ctx); close(over) }()
		q.Say(broker.Event{Kind: broker.Warning})
		time.Sleep(100 * time.Millisecond)
		q.Lost(errAway)
		time.Sleep(time.Millisecond)
		q.Found(time.Now())
		time.Sleep(time.Millisecond)
		q.Lost(errAway)
		time.Sleep(2 * time.Second)
		end()
		q.Say(broker.Event{Kind: broker.Ended})
		<-over
		want := []string{"0s warning", "100ms down", "101ms up", "1.1s down", "2.102s ended"}
		if !slices.Equal(*told, want) {
			t.Errorf("told %v, want %v", *told, want)
		}
	})
}

// TestTellNext: a loop learns when to tell a Down that waits.
func TestTellNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, told := listen()
		q.Lost(errAway)
		q.Found(time.Now().Add(time.Millisecond))
		<-q.Ready()
		if next := q.Tell(); !next.IsZero() {
			t.Errorf("nothing waits, and it is to be told in %v", time.Until(next))
		}
		time.Sleep(300 * time.Millisecond)
		q.Lost(fmt.Errorf("again: %w", errAway))
		<-q.Ready()
		next := q.Tell()
		if wait := time.Until(next); wait != 700*time.Millisecond {
			t.Errorf("a Down waits for %v", wait)
		}
		time.Sleep(time.Until(next))
		q.Tell()
		if want := []string{"0s down", "0s up", "1s down"}; !slices.Equal(*told, want) {
			t.Errorf("told %v, want %v", *told, want)
		}
		if err := q.Trouble(); err == nil || err.Error() != "again: connection refused" {
			t.Errorf("the trouble is %v", err)
		}
	})
}

// TestTellWaits: when Tell returns, what was said before is told, also where another is telling it.
func TestTellWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := kit.NewEventQueue()
		var mu sync.Mutex
		told := false
		q.Observe(func(broker.Event) {
			time.Sleep(time.Second)
			mu.Lock()
			told = true
			mu.Unlock()
		})
		q.Say(broker.Event{Kind: broker.Assigned})
		go q.Tell()
		synctest.Wait()
		q.Tell()
		mu.Lock()
		defer mu.Unlock()
		if !told {
			t.Error("Tell returned before Observe had")
		}
	})
}

// TestSayInObserve: whoever is told may say something in turn.
func TestSayInObserve(t *testing.T) {
	q := kit.NewEventQueue()
	var got []broker.Kind
	q.Observe(func(e broker.Event) {
		got = append(got, e.Kind)
		if e.Kind == broker.Assigned {
			q.Say(broker.Event{Kind: broker.Gap})
		}
	})
	q.Say(broker.Event{Kind: broker.Assigned})
	q.Say(broker.Event{Kind: broker.Ended})
	q.Tell()
	if want := []broker.Kind{broker.Assigned, broker.Ended, broker.Gap}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}

// TestDuring: who waits for a broker in its Close tells of it meanwhile, each time when it is due, and not all at once at the
// end.
func TestDuring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, told := listen()
		q.Say(broker.Event{Kind: broker.Ended})
		err := q.During(func() error {
			for range 8 {
				q.Lost(errAway)
				time.Sleep(time.Second)
			}
			q.Say(broker.Event{Kind: broker.Unconfirmed})
			return errAway
		})
		want := []string{"0s ended", "0s down", "2s down", "6s down", "8s unconfirmed"}
		if !slices.Equal(*told, want) || !errors.Is(err, errAway) {
			t.Errorf("told %q and returned %v, want %q", *told, err, want)
		}
	})
}
