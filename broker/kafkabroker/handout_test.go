package kafkabroker

import (
	"fmt"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// What is given back while Receive decodes what comes after it is fetched by whoever looks next, which may be nobody but Receive:
// who was told of it looked while it could not be.
func TestGivenBackWhileReceiveDecodes(t *testing.T) {
	for name, let := range map[string]func(h *holdings, p *part, first broker.Message){
		"given back": func(h *holdings, p *part, first broker.Message) {
			if err := h.nack(p, []broker.Back{{Token: first.Token}}); err != nil {
				t.Fatal(err)
			}
		},
		"paused and resumed": func(h *holdings, _ *part, _ broker.Message) { h.pause(true, nil); h.pause(false, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{}.withDefaults()
			h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
			h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 30}})
			p := h.place("orders", 0)
			p.moveTo(1)
			p.put(newDecoder(testBatch{offsets: []int64{0, 1, 2}}.bytes(), 0, 3, true, nil, 1<<20), 100)
			now, dst := time.Now(), make([]broker.Message, 1)
			receive := func(meanwhile func()) (hungry bool) {
				l, err := h.lend(1, now, false)
				if err != nil || l.p == nil {
					t.Fatal(err, "nothing to hand out")
				}
				l.decode(dst)
				meanwhile()
				_, hungry = h.take(&l, dst, now)
				return hungry
			}
			receive(func() {})
			first := dst[0]
			hungry := receive(func() {
				let(h, p, first)
				if fs := h.plan(now); len(fs) > 0 {
					t.Fatal("it is fetched while Receive has it")
				}
			})
			if fs := h.plan(now); !hungry || len(fs) != 1 {
				t.Errorf("Receive has something to fetch: %v, and it is %d fetches", hungry, len(fs))
			}
		})
	}
}

// Where few messages come, all partitions are asked for together again, by Receive: the loop is not woken, which would ask for
// those that got nothing before Receive has taken what came. Where Receive does not wait, or cannot hand it out, the loop is.
func TestReceivePlansWhatItWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		before func(h *holdings, now time.Time)
		kicked bool
	}{
		"Receive waits":        {before: func(h *holdings, now time.Time) { _, _ = h.lend(10, now, false) }},
		"Receive is elsewhere": {before: func(*holdings, time.Time) {}, kicked: true},
		"its partition is held": {before: func(h *holdings, now time.Time) {
			_, _ = h.lend(10, now, false)
			h.hold(h.roster.parts[partitionID{"orders", 0}], now.Add(time.Hour))
			heard(h.bells.kick)
		}, kicked: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{}.withDefaults()
			h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
			h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 30}})
			for no := range int32(4) {
				h.place("orders", no).moveTo(1)
			}
			now, dst := time.Now(), make([]broker.Message, 10)
			fs := h.plan(now)
			c.before(h, now)
			heard(h.bells.kick)
			got := make([]fetched, 4)
			for i := range got {
				got[i] = fetched{partitionID: partitionID{"orders", int32(i)}, high: 3, stable: 3, preferred: -1}
			}
			got[0].records = testBatch{offsets: []int64{0, 1, 2}}.bytes()
			h.arrived(fs[0], got, nil, now)
			if kicked := heard(h.bells.kick); kicked != c.kicked || !heard(h.bells.wake) {
				t.Fatalf("the loop is woken: %v", kicked)
			}
			if c.kicked {
				return
			}
			l, err := h.lend(10, now, false)
			if err != nil || l.p == nil {
				t.Fatal(err, "nothing to hand out")
			}
			l.decode(dst)
			n, hungry := h.take(&l, dst, now)
			if fs = h.plan(now); n != 3 || !hungry || len(fs) != 1 || len(fs[0].parts) != 4 || fs[0].req.maxWait != cfg.MaxWait {
				t.Errorf("%d messages, Receive plans: %v, fetches %v", n, hungry, fs)
			}
		})
	}
}

// What is prefetched of a partition that is held stays, unless others need the room, or Receive is about to hand it out.
func TestHoldKeepsWhatIsPrefetched(t *testing.T) {
	for name, c := range map[string]struct {
		budget int64
		busy   bool
		kept   bool
	}{
		"room for others": {budget: 1 << 30, kept: true},
		"no room":         {budget: 150},
		"being decoded":   {budget: 1 << 30, busy: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{}.withDefaults()
			h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
			h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: c.budget}})
			p := h.place("orders", 0)
			p.leader = 1
			p.put(newDecoder(testBatch{offsets: []int64{0, 1, 2}}.bytes(), 0, 3, true, nil, 1<<20), 100)
			now, dst := time.Now(), make([]broker.Message, 3)
			receive := func(meanwhile func()) (n int) {
				l, err := h.lend(3, now, false)
				if err != nil {
					t.Fatal(err)
				}
				if l.p == nil {
					meanwhile()
					return 0
				}
				l.decode(dst)
				meanwhile()
				n, _ = h.take(&l, dst, now)
				return n
			}
			hold := func() { h.hold(p, now.Add(time.Minute)) }
			if c.busy {
				if n := receive(hold); n != 0 {
					t.Fatalf("%d messages were handed out that were decoded when it was held", n)
				}
			} else {
				hold()
			}
			if n := receive(func() {}); n != 0 {
				t.Fatalf("%d messages of what is held were handed out", n)
			}
			h.hold(p, now)
			fetches := len(h.plan(now))
			if kept := fetches == 0; kept != c.kept {
				t.Errorf("afterwards it is %d fetches", fetches)
			}
			if n := receive(func() {}); c.kept && n != 3 {
				t.Errorf("%d messages were handed out afterwards", n)
			}
		})
	}
}

// BenchmarkHandOut is the way of a message through the core: decoded, handed out and acked, in memory.
func BenchmarkHandOut(b *testing.B) {
	for _, chunk := range []int{1, 16, 100} {
		b.Run(fmt.Sprint("acks by ", chunk), func(b *testing.B) { benchmarkHandOut(b, chunk) })
	}
}

func benchmarkHandOut(b *testing.B, chunk int) {
	const n = 1000
	var raw []byte
	for base := int64(0); base < n; base += 100 {
		batch := testBatch{base: base}
		for o := range int64(100) {
			batch.offsets = append(batch.offsets, base+o)
		}
		raw = append(raw, batch.bytes()...)
	}
	cfg := Config{Window: 1 << 20}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 10 * n, Bytes: 1 << 30}})
	p := h.place("orders", 0)
	p.flying = true // nothing is to be fetched
	dst, tokens := make([]broker.Message, n), make([]uint64, n)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		p.tr = newTracker(progress{}, nil, 1<<20)
		p.prefetch.jump(0)
		p.put(newDecoder(raw, 0, n, true, nil, 1<<20), int64(len(raw)))
		b.StartTimer()
		for got := 0; got < n; {
			now := time.Now()
			l, err := h.lend(n, now, false)
			if err != nil || l.p == nil {
				b.Fatal(err, "nothing to hand out")
			}
			l.decode(dst)
			k, hungry := h.take(&l, dst, now)
			if hungry {
				h.plan(now)
			}
			for i := range k {
				tokens[i] = dst[i].Token
			}
			for i := 0; i < k; i += chunk {
				if err := h.ack(p, tokens[i:min(k, i+chunk)]); err != nil {
					b.Fatal(err)
				}
			}
			got += k
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/message")
}
