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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A load publishes numbered messages at a rate and remembers which ones were confirmed. One that was not is sent again, under the same
// number and id, so that the stream drops what it has.
type load struct {
	name   string // makes message ids differ from another load's
	js     jetstream.JetStream
	cancel context.CancelFunc
	wg     sync.WaitGroup
	next   atomic.Int64

	mu    sync.Mutex
	acked map[int64]int64 // number → sequence
}

const (
	publishers = 8
	loadStream = "LOAD"
)

// startLoad publishes rate messages a second until stop. limit > 0: that many in all.
func startLoad(t *testing.T, url string, rate int, limit int64) *load {
	t.Helper()
	js := connect(t, url)
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{name: rand.Text() + "-", js: js, cancel: cancel, acked: map[int64]int64{}}
	turns := make(chan int64, 1<<20)
	l.wg.Go(func() { l.pace(ctx, turns, rate, limit) })
	for range publishers {
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
	body := fmt.Appendf(nil, "%-100d", id)
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		ack, err := l.js.Publish(one, "load."+strconv.FormatInt(id%10, 10), body, jetstream.WithMsgID(l.name+strconv.FormatInt(id, 10)))
		cancel()
		if err == nil {
			l.mu.Lock()
			l.acked[id] = int64(ack.Sequence)
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

// connect makes a client that outlives a broker's restarts.
func connect(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
