package program_test

import (
	"context"
	"fmt"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program"
	"github.com/prometheus/client_golang/prometheus"
)

// newGreet makes a handler of the options that a route has under "with".
func newGreet(_ *handlers.Setup, o handlers.Options) (consumer.Handler, error) {
	c := struct {
		Greeting string `yaml:"greeting"`
	}{Greeting: "hello"} // the default
	if err := o.Decode(&c); err != nil {
		return nil, err
	}
	return func(_ context.Context, m *consumer.Message) error {
		fmt.Println(c.Greeting, string(m.Value))
		return nil
	}, nil
}

// A program with a handler of its own. Its configuration file says
//
//	routes: [{handler: greet, with: {greeting: good morning}}]
//
// and run, produce, config check and the other commands are those of longshore.
func ExampleMain() {
	handlers.Register("greet", newGreet)
	program.Main(handlers.Default()) // does not return
}

// newMemory makes what a consumer needs of a broker that longshore does not know: here the one in memory.
func newMemory(b *membroker.Broker) program.Adapter {
	return func(_ program.AdapterSetup, o handlers.Options) (*program.Broker, error) {
		var c struct {
			Topics []string `yaml:"topics"`
			Group  string   `yaml:"group"`
		}
		if err := o.Decode(&c); err != nil {
			return nil, err // with the paths of what is wrong
		}
		if c.Group == "" {
			return nil, handlers.OptionErrors{{Path: "group", Problem: "is missing"}}
		}
		return &program.Broker{
			Source:    b.Source(membroker.SourceConfig{Topics: c.Topics, Group: c.Group}),
			Publisher: func() (broker.Publisher, error) { return b.Publisher(), nil },
			Topics:    c.Topics,
		}, nil
	}
}

// newStore makes a batch handler of the options that a batch has under "with".
func newStore(_ *handlers.Setup, o handlers.Options) (consumer.BatchHandler, error) {
	var c struct {
		Table string `yaml:"table"`
	}
	if err := o.Decode(&c); err != nil {
		return nil, err
	}
	return func(_ context.Context, ms []*consumer.Message) error {
		stored.Add(float64(len(ms)))
		fmt.Println(len(ms), "rows for", c.Table)
		return nil
	}, nil
}

var stored = prometheus.NewCounter(prometheus.CounterOpts{Name: "shop_stored_rows_total", Help: "Rows that were stored."})

// A program with a broker of its own, a batch handler, and a metric. Its configuration file says
//
//	source: {memory: {topics: [orders], group: workers}}
//	dead_letter: {to: dead}
//	batch: {handler: store, size: 500, with: {table: orders}}
func ExampleMainWith() {
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 4, "dead": 1}})
	handlers.RegisterBatch("store", newStore)
	program.MainWith(program.Parts{ // does not return
		Adapters:   map[string]program.Adapter{"memory": newMemory(b)},
		Collectors: []prometheus.Collector{stored},
	})
}
