package metrics_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// A series is one of a scrape of one process.
type series struct {
	labels map[string]string
	value  float64
}

// scrape returns the series of one name of several processes.
func scrape(t *testing.T, name string, processes []*metrics.Collector) (all []series) {
	t.Helper()
	for _, m := range processes {
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(m)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, x := range f.GetMetric() {
				if f.GetName() != name {
					continue
				}
				s := series{labels: map[string]string{}, value: x.GetGauge().GetValue()}
				for _, l := range x.GetLabel() {
					s.labels[l.GetName()] = l.GetValue()
				}
				all = append(all, s)
			}
		}
	}
	return all
}

// maxBy is PromQL's max by.
func maxBy(all []series, labels ...string) (out []series) {
	at := map[string]int{}
	for _, s := range all {
		kept := map[string]string{}
		for _, l := range labels {
			kept[l] = s.labels[l]
		}
		key := fmt.Sprint(kept)
		i, ok := at[key]
		if !ok {
			at[key] = len(out)
			out = append(out, series{kept, s.value})
			continue
		}
		out[i].value = max(out[i].value, s.value)
	}
	return out
}

func sum(all []series) (v float64) {
	for _, s := range all {
		v += s.value
	}
	return v
}

// Of two processes of a consumer, sum by (consumer) (max by (consumer, topic, partition) (…)) is the lag of both, whether each
// has partitions of its own or both tell of the same messages.
func TestLagOfTwoProcesses(t *testing.T) {
	for name, cfg := range map[string]membroker.Config{
		"partitioned": {Topics: map[string]int{"in": 4, "more": 2}},
		"leased":      {Topics: map[string]int{"in": 1, "more": 1}, Leased: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lagOfTwo(t, membroker.New(cfg), !cfg.Leased) })
		})
	}
}

func lagOfTwo(t *testing.T, b *membroker.Broker, partitioned bool) {
	const messages, held = 400, 4 // at most 4 are held by each process
	ctx, stop := context.WithCancel(t.Context())
	var processes []*metrics.Collector
	done := make(chan error, 2)
	for range 2 {
		m := metrics.New("orders")
		c, err := consumer.New(consumer.Config{
			Name: "orders", Source: b.Source(membroker.SourceConfig{Topics: []string{"in",
				"more"}}), Observers: []consumer.Observer{m.Observe},
			Pool: consumer.Pool{Max: 2}, Budget: broker.Budget{Messages: held},
			Handler:      func(ctx context.Context, _ *consumer.Message) error { <-ctx.Done(); return ctx.Err() },
			DrainTimeout: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Watch(c)
		processes = append(processes, m)
		go func() { done <- c.Run(ctx) }()
	}
	time.Sleep(time.Minute)
	for i := range messages {
		topic := "in"
		if i%4 == 0 {
			topic = "more"
		}
		if err := b.Produce(broker.Outgoing{Topic: topic, Key: fmt.Append(nil, i), Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(10 * time.Second)
	unsettled := scrape(t, "longshore_unsettled_messages", processes)
	if got := sum(maxBy(unsettled, "consumer", "topic", "partition")); got != messages {
		t.Errorf("%v unsettled, want %d; series %v", got, messages, unsettled)
	}
	waiting := sum(maxBy(scrape(t, "longshore_lag_messages", processes), "consumer", "topic", "partition"))
	if waiting > messages-2 || waiting < messages-2*held {
		t.Errorf("%v wait, of %d of which each process holds some", waiting, messages)
	}
	for _, s := range unsettled {
		if partitioned != (s.labels["topic"] != "" && s.labels["partition"] != "") {
			t.Errorf("a series %v", s)
		}
	}
	if old := sum(maxBy(unsettled, "consumer")); partitioned && old >= messages {
		t.Errorf("the larger one of two processes has %v of %d: the test shows nothing", old, messages)
	}
	stop()
	for range processes {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// oddTopic has a lag of a topic whose name is no text, as one that an adapter for another broker, or a broker that says anything,
// may have.
type oddTopic struct{ fixedStats }

func (oddTopic) LagByPartition() []broker.PartitionLag {
	return []broker.PartitionLag{{Topic: "orders\xff", Lag: broker.Lag{Waiting: 7}}}
}

// TestLagOfAnOddTopic: a scrape panicked, in a goroutine of the registry's, and ended the process.
func TestLagOfAnOddTopic(t *testing.T) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panicked: %v", p)
		}
	}()
	m := metrics.New("orders")
	m.Watch(oddTopic{})
	all := make(chan prometheus.Metric, 1000)
	m.Collect(all) // here, where a panic can be seen
	if got := scrape(t, "longshore_lag_messages", []*metrics.Collector{m}); len(got) != 1 || got[0].value != 7 {
		t.Errorf("%v", got)
	}
}
