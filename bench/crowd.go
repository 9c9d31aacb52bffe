package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// crowds are the numbers of workers in the figures of many.
var crowds = []int{2000, 10_000}

// fewInCrowd is what the memory of many workers is compared with.
const fewInCrowd = 64

// atPeak adds the peak to a sample.
func atPeak(measure func(n int, where string) sample) func(n int, where string) sample {
	return func(n int, where string) sample {
		s := measure(n, where)
		s.RSS = peakRSS()
		return s
	}
}

// crowdSystems are longshore, bare goroutines, and franz-go with a channel, with that many workers, whose handlers take 1 ms: one
// run of each for its rate, and a shorter one for its memory, or what a longer run leaves as garbage would count as the workers'.
// The start, in which each stack grows, would be a good part of a short one.
func crowdSystems() (all []system) {
	for _, w := range crowds {
		all = append(all, crowdOf(w, 2_500_000, "")...)
	}
	for _, w := range append(slices.Clone(crowds), fewInCrowd) {
		all = append(all, crowdOf(w, 500_000, "_memory")...)
	}
	return all
}

func crowdOf(w, n int, suffix string) []system {
	name := func(of string) string { return fmt.Sprintf("%s_%d%s", of, w, suffix) }
	return []system{
		{name("longshore"), n, atPeak(func(n int, at string) sample { return kafkaLongshore(at, n, w, millisecond) })},
		{name("bare"), n, atPeak(func(n int, _ string) sample { return bare(n, w, millisecond) })},
		{name("franz"), n, atPeak(func(n int, at string) sample { return franzCrowd(at, n, w, millisecond) })},
	}
}

// franzCrowd is franz-go and a channel to as many goroutines. It commits what nobody has handled: the cost of a crowd without any
// care, which bare sleeps do not have, for nobody brings them a message.
func franzCrowd(where string, n, workers int, do func(int)) sample {
	r := newKafkaRun(where, n)
	c := must(kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.ConsumerGroup(r.group), kgo.ConsumeTopics(r.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(time.Second)))
	records := make(chan *kgo.Record, workers)
	for range workers {
		go func() {
			for range records {
				do(0)
				r.saw()
			}
		}()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go poll(ctx, c, func(m *kgo.Record) { records <- m })
	return r.result(n)
}

func crowdFigures(m map[string]sample) (fs []figure) {
	least := map[int]float64{2000: 0.6, 10_000: 0.5}
	for _, w := range crowds {
		of := func(name string) sample { return m[fmt.Sprintf("%s_%d", name, w)] }
		each := func(name string) float64 {
			all, few := m[fmt.Sprintf("%s_%d_memory", name, w)], m[fmt.Sprintf("%s_%d_memory", name, fewInCrowd)]
			return (all.RSS - few.RSS) / float64(w-fewInCrowd)
		}
		l, b, f := of("longshore"), of("bare"), of("franz")
		name := fmt.Sprintf("kafka_1ms_%d", w)
		fs = append(fs, atLeast(name+"_throughput_vs_bare", b.WallNS/l.WallNS, least[w]),
			show(name+"_throughput_vs_franz", f.WallNS/l.WallNS), show(name+"_cpu_vs_franz", l.CPUNS/f.CPUNS),
			atMost(name+"_bytes_a_worker", each("longshore"), 6<<10), show(name+"_bytes_a_worker_bare", each("bare")),
			show(name+"_bytes_a_worker_franz", each("franz")),
			show(name+"_messages_per_second", 1e9/l.WallNS), show(name+"_messages_per_second_bare", 1e9/b.WallNS),
			show(name+"_cpu_us", l.CPUNS/1e3), show(name+"_cpu_us_bare", b.CPUNS/1e3))
	}
	return fs
}
