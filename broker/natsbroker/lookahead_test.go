package natsbroker

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestLookahead: whatever stands in a stream comes once and in its order; what stands side by side is asked for in far less time
// than one after the other, what stands far apart with few requests in vain, and what is large by itself.
func TestLookahead(t *testing.T) {
	side := func(n int) (list []uint64) {
		for i := range n {
			list = append(list, uint64(i+1))
		}
		return list
	}
	apart := func(n, by int) (list []uint64) {
		for i := range n {
			list = append(list, uint64((i+1)*by))
		}
		return list
	}
	for _, c := range []struct {
		name       string
		stored     []uint64
		from, last uint64
		bytes      int
		turns      int // as long as so many requests one after the other
		requests   int
		atOnce     int64
	}{
		{name: "none", from: 1, last: 10, turns: 1, requests: 1, atOnce: 1},
		{name: "side by side", stored: side(1000), from: 1, last: 1000, turns: 70, requests: 1000, atOnce: mostAhead},
		{name: "from the middle", stored: side(1000), from: 901, last: 1000, turns: 20, requests: 100, atOnce: mostAhead},
		{name: "more came", stored: side(1000), from: 1, last: 10, turns: 5, requests: 10, atOnce: 5},
		{name: "every second", stored: apart(500, 2), from: 1, last: 1000, turns: 500, requests: 500, atOnce: 1},
		{name: "far apart", stored: apart(100, 50), from: 1, last: 5000, turns: 100, requests: 100, atOnce: 1},
		{name: "a gap", stored: append(side(200), apart(1, 500)...), from: 1, last: 500, turns: 30, requests: 240, atOnce: mostAhead},
		{name: "the end is gone", stored: side(200), from: 1, last: 500, turns: 30, requests: 240, atOnce: mostAhead},
		{name: "large", stored: side(50), from: 1, last: 50, bytes: bytesAhead, turns: 50, requests: 50, atOnce: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests, now, most atomic.Int64
				l := lookahead{at: c.from, get: func(_ context.Context, seq uint64) (*storedMsg, error) {
					requests.Add(1)
					n := now.Add(1)
					defer now.Add(-1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(time.Second)
					i, _ := slices.BinarySearch(c.stored, seq)
					if i == len(c.stored) {
						return nil, jetstream.ErrMsgNotFound
					}
					return &storedMsg{Seq: c.stored[i], Data: make([]byte, c.bytes)}, nil
				}}
				var got, want []uint64
				for _, seq := range c.stored {
					if seq >= c.from && seq <= c.last {
						want = append(want, seq)
					}
				}
				began := time.Now()
				err := l.each(t.Context(), c.last, func(m *storedMsg) error {
					got = append(got, m.Seq)
					return nil
				})
				if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
					t.Fatal(err)
				}
				if !slices.Equal(got, want) {
					t.Errorf("came: %v, want %v", got, want)
				}
				if took := int(time.Since(began) / time.Second); took > c.turns {
					t.Errorf("it took as long as %d requests one after the other, want at most %d", took, c.turns)
				}
				if n := int(requests.Load()); n > c.requests {
					t.Errorf("%d requests, want at most %d", n, c.requests)
				}
				if n := most.Load(); n > c.atOnce {
					t.Errorf("%d requests at once, want at most %d", n, c.atOnce)
				}
			})
		})
	}
}

// TestLookaheadStops: what has an error ends it, in the order of the stream, and nothing is under way behind it.
func TestLookaheadStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, enough := errors.New("broken"), errors.New("enough")
		var now atomic.Int64
		get := func(ctx context.Context, seq uint64) (*storedMsg, error) {
			now.Add(1)
			defer now.Add(-1)
			if seq == 100 {
				return nil, broken
			}
			select {
			case <-time.After(time.Second):
				return &storedMsg{Seq: seq}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		for at, want := range map[uint64]error{1000: broken, 100: broken, 99: enough, 1: enough} {
			var came uint64
			l := lookahead{at: 1, get: get}
			err := l.each(t.Context(), 1000, func(m *storedMsg) error {
				if came = m.Seq; came == at {
					return enough
				}
				return nil
			})
			if !errors.Is(err, want) || came != min(at, 99) {
				t.Errorf("stopped at %d: %v after message %d, want %v", at, err, came, want)
			}
			if n := now.Load(); n != 0 {
				t.Errorf("stopped at %d: %d requests are under way", at, n)
			}
		}
	})
}
