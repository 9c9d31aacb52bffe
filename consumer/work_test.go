package consumer

import (
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"pgregory.net/rapid"
)

func TestWorkStatePacks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, maxChunk)
		from, next, end := limit.Draw(t, "from"), limit.Draw(t, "next"), limit.Draw(t, "end")
		v := withFields(expired|disowned, from, next, end)
		f, n, e := unpackState(v)
		if f != from || n != next || e != end || v&expired == 0 || v&disowned == 0 {
			t.Fatalf("packed %d %d %d, got %d %d %d, flags %x", from, next, end, f, n, e, v>>60)
		}
	})
}

// One worker takes, fails and finishes, while others steal and disown: each message is settled by exactly one of them.
func TestWorkEachMessageHasOneHolder(t *testing.T) {
	const messages = 64
	for range 300 {
		var r work
		r.init(nil, make([]broker.Message, messages), nil)
		var holders [messages]atomic.Int32
		settle := func(a, b int) {
			for i := a; i < b; i++ {
				holders[i].Add(1)
			}
		}
		var wg sync.WaitGroup
		var left atomic.Bool
		for range 2 {
			wg.Go(func() {
				for !left.Load() {
					d0, d1, u0, u1 := r.steal()
					settle(d0, d1)
					settle(u0, u1)
					runtime.Gosched()
				}
			})
		}
		wg.Go(func() {
			for !left.Load() {
				if i := r.running(); i > messages/2 {
					if from, end, ok := r.disown(i); ok {
						settle(from, end) // the successes, message i, and the unstarted
						return
					}
				}
				runtime.Gosched()
			}
		})
		for {
			i, v, ok := r.take()
			if !ok {
				if v&disowned == 0 {
					from, _, end := unpackState(v)
					settle(from, end)
				}
				break
			}
			if i%7 == 3 {
				if from, _, ok := r.takeOut(i); ok {
					settle(from, i+1)
				}
			}
		}
		left.Store(true)
		wg.Wait()
		for i := range holders {
			if n := holders[i].Load(); n != 1 {
				t.Fatalf("message %d was settled %d times", i, n)
			}
		}
	}
}

func TestWorkFailTwiceIsDecidedOnce(t *testing.T) {
	var r work
	r.init(nil, make([]broker.Message, 3), nil)
	r.take()
	if _, _, ok := r.takeOut(0); !ok {
		t.Fatal("the first fail was refused")
	}
	if _, _, ok := r.takeOut(0); ok {
		t.Fatal("the second fail of the same message was accepted")
	}
}

func TestWorkMarkOnlyWhileRunning(t *testing.T) {
	var r work
	r.init(nil, make([]broker.Message, 2), nil)
	r.take()
	if r.mark(1, expired) {
		t.Fatal("marked a message that is not running")
	}
	if !r.mark(0, expired) || r.mark(0, expired) {
		t.Fatal("a running message is marked once")
	}
	if _, v, _ := r.take(); v&expired == 0 {
		t.Fatal("the worker does not see the mark at its next take")
	}
}

// What is stolen of a run is a run like it: a field that is neither carried over nor named here was forgotten.
func TestRestCarriesAll(t *testing.T) {
	own := []string{"state", "linked", "prev", "next", "seen"}
	ms := make([]broker.Message, 3)
	for name, r := range map[string]*work{
		"messages": {k: &claim{}, ms: ms, lanes: []uint64{1, 2, 3}, tokens: []uint64{4, 5, 6}, each: true, past: past{first: 7}},
		"batch": {k: &claim{}, ms: ms, lanes: []uint64{1, 2, 3}, each: true, past: past{first: 7},
			batch: true, pasts: make([]past, 3)},
	} {
		rest := r.rest(0, 1)
		for i := range reflect.TypeFor[work]().NumField() {
			f := reflect.TypeFor[work]().Field(i)
			if was, is := reflect.ValueOf(r).Elem().Field(i), reflect.ValueOf(rest).Elem().Field(i); !slices.Contains(own, f.Name) &&
				was.IsZero() != is.IsZero() {
				t.Errorf("%s: the rest has not %s", name, f.Name)
			}
		}
		if want := r.part(0, 1); len(rest.ms) != len(want) || rest.unstarted() != len(want) || len(rest.lanes) != len(want) {
			t.Errorf("%s: %d messages, %d unstarted, %d lanes, want %d", name, len(rest.ms), rest.unstarted(), len(rest.lanes), len(want))
		}
	}
}

// TestDecidedIsNotDisowned: a handler has failed, and its worker decides about the message, which may take a while. The watchdog
// comes to it meanwhile, and finds the worker in that call for too long. It must not decide, too.
func TestDecidedIsNotDisowned(t *testing.T) {
	w := &work{}
	w.init(&claim{}, make([]Message, 3), nil)
	i, _, ok := w.take()
	if !ok {
		t.Fatal("nothing was taken")
	}
	if _, _, ok := w.takeOut(i); !ok {
		t.Fatal("it was not the worker's to decide")
	}
	if _, _, ok := w.disown(i); ok {
		t.Error("two decide about one message")
	}
}
