package kafkabroker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestCutOffAgain: a log is cut off again and again, at any offset, longer or shorter than before, while it is read, before an
// earlier cut was looked at, and while its partition begins anew. Everything of the last log is handled, and once it is looked at
// nothing is asked for in vain any more (f31).
func TestCutOffAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sticky", "consumer", "transactional"} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", mode, seed), func(t *testing.T) {
				t.Parallel()
				ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1}, mode)
				ts.lease = lasting
				l := &epochLog{}
				l.serve(ts)
				rnd := rand.New(rand.NewPCG(seed, 7))
				want := l.put(0, 10, 0, "first")
				r := startCut(t, ts, "earliest", -1)
				for epoch := int32(1); epoch <= 12; epoch++ {
					if wait := rnd.IntN(3); wait > 0 {
						time.Sleep(time.Duration(rnd.IntN(20*wait*wait)) * time.Millisecond)
					}
					at := rnd.IntN(len(want) + 1)
					want = append(want[:at:at], l.put(at, 1+rnd.IntN(12), epoch, fmt.Sprintf("of%d-", epoch))...)
				}
				eventually(t, "all of the last log came", func() bool { return r.has(want) })
				eventually(t, "all is committed", func() bool { return ts.fakeProgress(ts.topics[0])[0].committed == int64(len(want)) })
				time.Sleep(200 * time.Millisecond)
				if again := r.gaps(); again > 12 {
					t.Errorf("%d gaps are told of 12 cuts", again)
				}
			})
		}
	}
}

func (r *runner) gaps() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == broker.Gap {
			n++
		}
	}
	return n
}
