package consumer

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// latencyBounds are the upper bounds of Latency's buckets.
var latencyBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	500 * time.Millisecond,
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
	time.Hour, 6 * time.Hour, 24 * time.Hour,
}

// A Latency counts handled messages by how old they were when they were acked: from Message.Time, which the producer or the
// broker set, to the ack. So it has the wait at the broker in it, all attempts, and the difference of two machines' clocks; one
// that came from the future counts as 0.
type Latency struct {
	// Bounds are the upper bounds of the first buckets; the last bucket has what is above all.
	Bounds []time.Duration
	// Buckets are messages each; not added up.
	Buckets []int64
	// Sum of all, at most the longest Duration, 292 years: that is what 15,000 messages have that are a week old.
	Sum time.Duration
	// Seconds are the sum of all, however large.
	Seconds float64
}

// ages is the latency as it is counted.
type ages struct {
	buckets [len(latencyBounds) + 1]atomic.Int64
	sum     atomic.Uint64 // the bits of a float64: nanoseconds
}

// add counts messages that are acked now. Those of a work are mostly of one bucket: there is one write for all in a row that are.
func (a *ages) add(ms []broker.Message, now int64) {
	at, n, sum := 0, int64(0), 0.0
	for i := range ms {
		if ms[i].Nanos == 0 {
			continue
		}
		age := max(0, now-ms[i].Nanos)
		if b := bucketOf(age); b != at {
			a.put(at, n)
			at, n = b, 0
		}
		n++
		sum += float64(age)
	}
	a.put(at, n)
	for old := a.sum.Load(); sum > 0 && !a.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+sum)); {
		old = a.sum.Load()
	}
}

func (a *ages) put(b int, n int64) {
	if n > 0 {
		a.buckets[b].Add(n)
	}
}

// bucketOf is the number of the first bucket that an age is not above.
func bucketOf(age int64) (b int) {
	for b < len(latencyBounds) && age > int64(latencyBounds[b]) {
		b++
	}
	return b
}

func (a *ages) latency() Latency {
	sum := math.Float64frombits(a.sum.Load())
	l := Latency{Bounds: latencyBounds[:], Buckets: make([]int64, len(a.buckets)), Sum: math.MaxInt64, Seconds: sum / 1e9}
	if sum < math.MaxInt64 {
		l.Sum = time.Duration(sum)
	}
	for i := range l.Buckets {
		l.Buckets[i] = a.buckets[i].Load()
	}
	return l
}
