package program

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Parts are what a main function of your own adds to longshore. The zero value adds nothing.
type Parts struct {
	// Handlers are the handlers, batch handlers, middleware and codecs that files may name. Defaults to handlers.Default().
	Handlers *handlers.Registry
	// Adapters are brokers beside NATS and Kafka, by the name of their section: "redis" is for source: {redis: …}. The name consists
	// of lower-case letters, digits and _. Only run and config know them, not lag and dlq. Defaults to none.
	Adapters map[string]Adapter
	// Collectors are served by /metrics, too. Their metrics must not begin with longshore_, and be none of the Go runtime's and the
	// process's. Defaults to none.
	Collectors []prometheus.Collector
	// Observers are told what happens in a consumer, by its name; what they are told, and how, is written at consumer.Observer.
	// Called once for each consumer of a file, also by config check. Defaults to none.
	Observers func(consumer string) []consumer.Observer
	// Logger gets what run logs, with all its levels, in place of what the section log of the file says: for a team whose programs
	// log by log/slog, what consumer.SlogLogger makes of their handler. Defaults to nil: the file's.
	Logger *zerolog.Logger
}

// An Adapter makes what a consumer needs of a broker, of its section in a configuration file. It decodes the options strictly
// (handlers.Options.Decode), checks all that can be checked, and reports all findings at once: as handlers.OptionErrors, which
// have paths, or as *broker.Findings, as longshore's own Configs report them; a field's name is then told in snake case. It
// connects to nothing. Called by config check, too.
type Adapter func(s AdapterSetup, o handlers.Options) (*Broker, error)

// AdapterSetup is what an Adapter is told about the consumer.
type AdapterSetup struct {
	// Consumer is its name.
	Consumer string
	// Order is as consumer.Config.Order.
	Order consumer.Order
	// Shares: a limit of the consumer is shared by its processes, so the source has to be a broker.Sharer.
	Shares bool
}

// A Broker is where a consumer reads and publishes.
type Broker struct {
	// Source is where it reads. Run opens and closes it. Required.
	Source broker.Source
	// Publisher makes what dead letters, retry topics, the handler publish and handlers that emit (consumer.Emit) need; the program
	// closes it. Called at most once. Nil: the consumer can have none of these.
	Publisher func() (broker.Publisher, error)
	// Topics are the topics that Source reads, as far as they are known, so that publish can refuse to feed its own source. Defaults
	// to none.
	Topics []string
	// Retries makes a source that reads the topics of retry. Nil: there can be none, since the broker keeps delays itself or knows
	// no topics.
	Retries func(topics []string) (broker.Source, error)
}

var adapterName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// withDefaults fills in what is not set.
func (p Parts) withDefaults() Parts {
	if p.Handlers == nil {
		p.Handlers = handlers.Default()
	}
	return p
}

// validate reports all findings at once.
func (p Parts) validate() error {
	var errs []error
	for _, name := range p.adapters() {
		switch {
		case slices.Contains([]string{"nats", "nats_core", "kafka", "weight"}, name):
			errs = append(errs, fmt.Errorf("program parts: Adapters has %q, which is longshore's own", name))
		case !adapterName.MatchString(name):
			errs = append(errs, fmt.Errorf("program parts: Adapters has %q: a name consists of lower-case letters, digits and _, a "+
				"letter first", name))
		case p.Adapters[name] == nil:
			errs = append(errs, fmt.Errorf("program parts: Adapters has %q, and it is nil", name))
		}
	}
	_, err := p.metrics()
	return errors.Join(append(errs, err)...)
}

// adapters are their names, sorted.
func (p Parts) adapters() []string { return slices.Sorted(maps.Keys(p.Adapters)) }

// metrics is a registry with the process's own metrics and those of the parts.
func (p Parts) metrics() (*prometheus.Registry, error) {
	registry := processMetrics()
	var errs []error
	for i, c := range p.Collectors {
		if c == nil {
			errs = append(errs, fmt.Errorf("program parts: Collectors[%d] is nil", i))
			continue
		}
		if err := registry.Register(c); err != nil {
			errs = append(errs, fmt.Errorf("program parts: Collectors[%d], of %s: %w", i, metricsOf(c), err))
		}
	}
	return registry, errors.Join(errs...)
}

// metricsOf names what a collector has: the library's error does not say which of them is there twice.
func metricsOf(c prometheus.Collector) string {
	described := make(chan *prometheus.Desc)
	go func() { defer close(described); c.Describe(described) }()
	var names []string
	for d := range described {
		if m := descName.FindStringSubmatch(d.String()); m != nil && !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	const most = 5
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return cmp.Or(strings.Join(names, ", "), "no metric")
}

// descName is the metric's in a description's text, which does not give it otherwise.
var descName = regexp.MustCompile(`fqName: "([^"]*)"`)
