package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/panjf2000/ants/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/integration/kafkad"
)

// trickleRate is how many messages come in a second where there are few.
const trickleRate = 200

// withTrickle is withKafka with an empty topic, to which messages come for as long as do lasts, from this process: what they cost
// is not measured.
func withTrickle(_ int, do func(where string)) error {
	return onKafka(func(brokers []string) error {
		topic := kafkad.Unique("bench")
		if err := fillTopic(brokers, topic, 0, manyKeys, zeros()); err != nil {
			return err
		}
		c, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic))
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			tick := time.NewTicker(time.Second / trickleRate)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				c.Produce(ctx, &kgo.Record{Value: make([]byte, 100)}, nil)
			}
		}()
		do(topic + "@" + strings.Join(brokers, ","))
		return nil
	})
}

// trickled measures a consumer of what trickles in while so much time passes as idleTick says for n, after as much for the start.
// Figures are per message; it calls handled for each.
func trickled(n int, begin func(handled func()) (end func())) sample {
	var count atomic.Int64
	defer begin(func() { count.Add(1) })()
	lasts := time.Duration(n) * idleTick
	time.Sleep(lasts)
	m, from := start(), count.Load()
	time.Sleep(lasts)
	return m.stop(max(1, int(count.Load()-from)))
}

func trickleLongshore(n int, where string, workers int) sample {
	return trickled(n, func(handled func()) (end func()) {
		r := newKafkaRun(where, 1<<62)
		return r.longshore(workers, 0, func(i int) { millisecond(i); handled() })
	})
}

// trickleAnts is franz-go with a pool of goroutines.
func trickleAnts(n int, where string) sample {
	return trickled(n, func(handled func()) (end func()) {
		r, p := newKafkaRun(where, 1<<62), must(ants.NewPool(workers))
		ctx, cancel := context.WithCancel(context.Background())
		go poll(ctx, must(r.franz()), func(*kgo.Record) { check(p.Submit(func() { millisecond(0); handled() })) })
		return cancel
	})
}

func trickleFigures(m map[string]sample) []figure {
	l, auto, a := m["longshore"], m["longshore_auto"], m["ants"]
	return []figure{
		atMost("trickle_cpu_vs_ants", l.CPUNS/a.CPUNS, 1.3), show("trickle_auto_cpu_vs_ants", auto.CPUNS/a.CPUNS),
		show("trickle_cpu_us", l.CPUNS/1e3), show("trickle_auto_cpu_us", auto.CPUNS/1e3), show("trickle_cpu_us_ants", a.CPUNS/1e3),
	}
}

// withBacklog is withKafka with more messages than are handled.
func withBacklog(_ int, do func(where string)) error { return withKafka(100_000, do) }

// slowFigures are of one worker that handles 20 messages a second of many.
func slowFigures(m map[string]sample) []figure {
	l, b := m["longshore"], m["bare"]
	return []figure{
		atMost("slow_percent_of_a_core", 100*l.CPUNS/l.WallNS, 1), show("slow_percent_of_a_core_bare", 100*b.CPUNS/b.WallNS),
		show("slow_switches_per_message", l.Switches),
	}
}

var fiftyMilliseconds = func(int) { time.Sleep(50 * time.Millisecond) }
