//go:build unix

package integration

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A load publishes numbered messages at a rate and remembers which ones were confirmed. One that was not is sent again, under the
// same number.
type load struct {
	name   string // differs from any other load's
	store  publish
	size   int     // of each message, at least
	spread *spread // of its keys; nil: it has none
	cancel context.CancelFunc
	wg     sync.WaitGroup
	next   atomic.Int64

	mu    sync.Mutex
	acked map[int64]int64 // number → sequence
}

// publishers wait for a confirmation each. Where there are keys, more of them store a key's messages close behind each other.
const (
	publishers      = 8
	keyedPublishers = 32
)

// startLoad publishes rate messages of 100 bytes a second until stop. limit > 0: that many in all.
func (f *field) startLoad(t *testing.T, rate int, limit int64) *load {
	t.Helper()
	return f.startSizedLoad(t, rate, limit, 100)
}

func (f *field) startSizedLoad(t *testing.T, rate int, limit int64, size int) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{name: rand.Text() + "-", store: f.on.publisher(t), size: size, spread: f.spread, cancel: cancel,
		acked: map[int64]int64{}}
	turns := make(chan int64, 1<<20)
	l.wg.Go(func() { l.pace(ctx, turns, rate, limit) })
	n := publishers
	if f.spread != nil {
		n = keyedPublishers
	}
	for range n {
		l.wg.Go(func() {
			for id := range turns {
				l.publish(ctx, id)
			}
		})
	}
	t.Cleanup(func() { l.stop() })
	return l
}

// pace hands out numbers. It catches up what it missed, so the rate holds on a busy machine too.
func (l *load) pace(ctx context.Context, turns chan<- int64, rate int, limit int64) {
	defer close(turns)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		due := int64(time.Since(began).Seconds() * float64(rate))
		if limit > 0 {
			due = min(due, limit)
		}
		for l.next.Load() < due {
			turns <- l.next.Add(1) - 1
		}
		if limit > 0 && due == limit {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *load) publish(ctx context.Context, id int64) {
	m := outgoing{load: l.name, id: id, body: fmt.Appendf(nil, "%-*d", l.size, id)}
	if l.spread != nil {
		m.key = "k" + strconv.FormatInt(l.spread.keyOf(id), 10)
	}
	for ctx.Err() == nil {
		seq, err := l.store(ctx, m)
		if err == nil {
			l.mu.Lock()
			l.acked[id] = seq
			l.mu.Unlock()
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// finish waits until all of a limited load is confirmed.
func (l *load) finish() { l.wg.Wait() }

// stop ends publishing. What was not confirmed by then counts as sent, not as acked.
func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
}

// stored is how many were confirmed.
func (l *load) stored() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.acked))
}

// confirmed returns a copy of what was confirmed, and how many numbers were handed out.
func (l *load) confirmed() (map[int64]int64, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := make(map[int64]int64, len(l.acked))
	for id, seq := range l.acked {
		m[id] = seq
	}
	return m, l.next.Load()
}
