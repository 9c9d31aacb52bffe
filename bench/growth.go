package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// A shape is what a topic has: so many partitions, and messages of so many bytes.
type shape struct {
	partitions, size int
	share            float64 // of the group's number of messages
}

// name is what follows a topic's name.
func (s shape) name() string { return fmt.Sprintf("-%d-%d", s.partitions, s.size) }

// withTopics is withKafka with a topic of each shape.
func withTopics(shapes ...shape) func(n int, do func(where string)) error {
	return func(n int, do func(where string)) error {
		return onKafka(func(brokers []string) error {
			prefix := kafkad.Unique("bench")
			for _, s := range shapes {
				if err := s.fill(brokers, prefix+s.name(), s.count(n)); err != nil {
					return fmt.Errorf("filling a topic of %d partitions: %w", s.partitions, err)
				}
			}
			do(prefix + "@" + strings.Join(brokers, ","))
			return nil
		})
	}
}

// runLength is how many messages of a partition come one after the other: producers fill a batch before they send it.
const runLength = 100

// fill fills a topic with n messages.
func (s shape) fill(brokers []string, topic string, n int) error {
	body := make([]byte, s.size)
	return fillRecords(brokers, topic, s.partitions, s.size, func(yield func(*kgo.Record) bool) {
		for i := range n {
			if !yield(&kgo.Record{Partition: int32(i / runLength % s.partitions), Value: body}) {
				return
			}
		}
	})
}

// at is where a shape's topic is.
func (s shape) at(where string) string {
	prefix, brokers, _ := strings.Cut(where, "@")
	return prefix + s.name() + "@" + brokers
}

// count is how many messages of a group's n the shape's topic has.
func (s shape) count(n int) int { return max(1, int(float64(n)*s.share)) }

// longshore reads all of the shape's topic.
func (s shape) longshore(workers int, bytes int64, do func(int)) func(n int, where string) sample {
	return func(n int, where string) sample { return longshoreOf(s.at(where), s.count(n), workers, bytes, do) }
}

// longshoreOf reads all of a topic.
func longshoreOf(where string, n, workers int, bytes int64, do func(int)) sample {
	r := newKafkaRun(where, n)
	defer r.longshore(workers, bytes, do)()
	return r.grown(n)
}

// longshore runs a consumer until end is called, which waits for its end: the broker goes next.
func (r *kafkaRun) longshore(workers int, bytes int64, do func(int)) (end func()) {
	source := must(kafkabroker.NewSource(kafkabroker.Config{Connection: kafkabroker.Connection{Brokers: r.brokers}, Group: r.group,
		Topics: []string{r.topic}}))
	c := must(consumer.New(consumer.Config{Source: source, Pool: consumer.Pool{Min: workers, Max: workers},
		Budget:  broker.Budget{Bytes: bytes},
		Handler: func(context.Context, *consumer.Message) error { do(0); r.saw(); return nil }}))
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { check(c.Run(ctx)) })
	return func() { cancel(); ended.Wait() }
}

// franz is franz-go, bare.
func (s shape) franz(n int, where string) sample { return franzOf(s.at(where), s.count(n)) }

func franzOf(where string, n int) sample {
	r := newKafkaRun(where, n)
	c := must(r.franz())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go poll(ctx, c, func(*kgo.Record) { r.saw() })
	return r.grown(n)
}

func (r *kafkaRun) franz() (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.ConsumerGroup(r.group), kgo.ConsumeTopics(r.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(time.Second))
}

// grown is result, with what the process has come to need.
func (r *kafkaRun) grown(n int) sample {
	s := r.result(n)
	s.StartNS = float64(r.meter.cpu) / float64(n)
	s.AllWallNS = s.WallNS + float64(r.meter.wall.Sub(r.made))/float64(n)
	s.Sockets, s.Goroutines, s.RSS = sockets(), runtime.NumGoroutine(), peakRSS()
	return s
}

// sockets are those that are open; 0 where the system does not tell.
func sockets() (n int) {
	const fds = "/proc/self/fd"
	es, _ := os.ReadDir(fds)
	for _, e := range es {
		if to, err := os.Readlink(fds + "/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// peakRSS is the most memory that the process has had, in bytes; 0 where the system does not tell. What getrusage has of it is
// that of the process which began this one, where that had more.
func peakRSS() float64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	var kib float64
	_, _ = fmt.Sscan(peak, &kib)
	return kib * 1024
}

// idleTick is what stands for a message where nothing is to be done: so many of them are measured, after as many for the start.
const idleTick = 50 * time.Microsecond

// atRest measures a process that has nothing to do: CPUNS is per nanosecond of it.
func atRest(n int, begin func() (end func())) sample {
	defer begin()()
	idle := time.Duration(n) * idleTick
	time.Sleep(idle)
	m := start()
	time.Sleep(idle)
	s := m.stop(int(idle))
	s.Goroutines, s.Sockets, s.RSS = runtime.NumGoroutine(), sockets(), peakRSS()
	return s
}

// idle is so many clients, each in a group of its own, that have read all of a topic. begin starts one.
func (s shape) idle(copies int, begin func(r *kafkaRun) (end func())) func(int, string) sample {
	return func(n int, where string) sample {
		return atRest(n, func() (end func()) {
			ends := make([]func(), copies)
			for i := range ends {
				ends[i] = begin(newKafkaRun(s.at(where), 1<<62))
			}
			return func() {
				for _, end := range ends {
					end()
				}
			}
		})
	}
}

func idleLongshore(r *kafkaRun) (end func()) { return r.longshore(0, 0, noop) }

func idleFranz(r *kafkaRun) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c := must(r.franz())
	go poll(ctx, c, func(*kgo.Record) { r.saw() })
	return cancel
}

// Topics of 100 bytes a message.
var (
	parts4    = shape{4, 100, 1}
	parts64   = shape{64, 100, 1}
	parts256  = shape{256, 100, 1}
	parts1000 = shape{1000, 100, 1}
)

// Topics of about 500 MB, of messages of one size each.
var (
	size1k   = shape{4, 1_000, 1}
	size10k  = shape{4, 10_000, 0.1}
	size100k = shape{4, 100_000, 0.01}
	size1m   = shape{4, 1_000_000, 0.001}
)

// Topics with next to nothing in them.
var (
	idle1    = shape{1, 100, 0.001}
	idle1000 = shape{1000, 100, 0.001}
)

var growthGroups = []group{
	{name: "partitions", server: withTopics(parts4, parts64, parts256, parts1000), figures: partitionFigures, systems: []system{
		{"longshore_4", 1_000_000, parts4.longshore(0, 0, noop)},
		{"franz_4", 1_000_000, parts4.franz},
		{"longshore_64", 1_000_000, parts64.longshore(0, 0, noop)},
		{"franz_64", 1_000_000, parts64.franz},
		{"longshore_256", 1_000_000, parts256.longshore(0, 0, noop)},
		{"franz_256", 1_000_000, parts256.franz},
		{"longshore_1000", 1_000_000, parts1000.longshore(0, 0, noop)},
		{"franz_1000", 1_000_000, parts1000.franz},
		{"longshore_1000_1ms", 200_000, parts1000.longshore(workers, 0, millisecond)},
		local("bare_1ms", 200_000, func(n int) sample { return bare(n, workers, millisecond) }),
	}},
	{name: "sizes", server: withTopics(size1k, size10k, size100k, size1m), figures: sizeFigures, systems: []system{
		{"longshore_1k", 500_000, size1k.longshore(0, 0, noop)},
		{"franz_1k", 500_000, size1k.franz},
		{"longshore_10k", 500_000, size10k.longshore(0, 0, noop)},
		{"franz_10k", 500_000, size10k.franz},
		{"longshore_100k", 500_000, size100k.longshore(0, 0, noop)},
		{"franz_100k", 500_000, size100k.franz},
		{"longshore_1m", 500_000, size1m.longshore(0, 0, noop)},
		{"franz_1m", 500_000, size1m.franz},
		{"longshore_1m_8mib", 500_000, size1m.longshore(0, 8<<20, noop)},
	}},
	{name: "idle", server: withTopics(idle1, idle1000), figures: idleFigures, systems: []system{
		{"longshore_1", 120_000, idle1.idle(1, idleLongshore)},
		{"franz_1", 120_000, idle1.idle(1, idleFranz)},
		{"longshore_1000", 120_000, idle1000.idle(1, idleLongshore)},
		{"franz_1000", 120_000, idle1000.idle(1, idleFranz)},
		{"longshore_x20", 120_000, idle1.idle(20, idleLongshore)},
		{"franz_x20", 120_000, idle1.idle(20, idleFranz)},
	}},
}

// partitionFigures has rates and CPU with the start: a client fetches ahead before it hands out the first message, and one
// fetches more than others.
func partitionFigures(m map[string]sample) (fs []figure) {
	most := map[string]float64{"4": 1.05, "64": 1.05, "256": 1.1, "1000": 1.2}
	for _, p := range []string{"4", "64", "256", "1000"} {
		l, f := m["longshore_"+p], m["franz_"+p]
		fs = append(fs,
			atMost("partitions_"+p+"_cpu_vs_franz", (l.CPUNS+l.StartNS)/(f.CPUNS+f.StartNS), most[p]),
			show("partitions_"+p+"_cpu_us", (l.CPUNS+l.StartNS)/1e3), show("partitions_"+p+"_cpu_us_franz", (f.CPUNS+f.StartNS)/1e3),
			show("partitions_"+p+"_messages_per_second", 1e9/l.AllWallNS),
			show("partitions_"+p+"_messages_per_second_franz", 1e9/f.AllWallNS),
			show("partitions_"+p+"_rss_mb", l.RSS/1e6), show("partitions_"+p+"_rss_mb_franz", f.RSS/1e6),
			show("partitions_"+p+"_sockets", float64(l.Sockets)))
	}
	l, b, all := m["longshore_1000_1ms"], m["bare_1ms"], m["longshore_1000"]
	return append(fs,
		atMost("partitions_1000_connections", float64(max(l.Sockets, all.Sockets)), 20),
		atLeast("partitions_1000_1ms_throughput_vs_bare", b.WallNS/l.WallNS, 0.92),
		atMost("partitions_1000_1ms_cpu_us", l.CPUNS/1e3, 4.5), show("bare_1ms_cpu_us", b.CPUNS/1e3))
}

func sizeFigures(m map[string]sample) (fs []figure) {
	bytes := map[string]float64{"1k": 1e3, "10k": 1e4, "100k": 1e5, "1m": 1e6}
	for _, s := range []string{"1k", "10k", "100k", "1m"} {
		l, f := m["longshore_"+s], m["franz_"+s]
		fs = append(fs,
			atLeast("sizes_"+s+"_rate_vs_franz", f.AllWallNS/l.AllWallNS, 1),
			show("sizes_"+s+"_cpu_vs_franz", (l.CPUNS+l.StartNS)/(f.CPUNS+f.StartNS)),
			show("sizes_"+s+"_mb_per_second", bytes[s]*1e3/l.AllWallNS),
			show("sizes_"+s+"_mb_per_second_franz", bytes[s]*1e3/f.AllWallNS),
			show("sizes_"+s+"_rss_mb", l.RSS/1e6), show("sizes_"+s+"_rss_mb_franz", f.RSS/1e6))
	}
	return append(fs, atMost("sizes_1m_rss_mb_at_8mib", m["longshore_1m_8mib"].RSS/1e6, 60),
		atMost("sizes_1m_rss_mb_at_64mib", m["longshore_1m"].RSS/1e6, 120))
}

func idleFigures(m map[string]sample) (fs []figure) {
	percent := func(s string) float64 { return 100 * m[s].CPUNS }
	fs = append(fs, atMost("idle_1000_partitions_percent", percent("longshore_1000"), 0.6),
		atMost("idle_20_consumers_percent", percent("longshore_x20"), 1.5))
	for _, s := range []string{"longshore_1", "franz_1", "longshore_1000", "franz_1000", "longshore_x20", "franz_x20"} {
		fs = append(fs, show("idle_percent_"+s, percent(s)), show("idle_switches_"+s, m[s].Switches*1e9),
			show("idle_goroutines_"+s, float64(m[s].Goroutines)))
	}
	return fs
}
