package metrics

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/prometheus/client_golang/prometheus"
)

// A figure is one number of consumer.Stats.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(consumer.Stats) float64
	// known says whether there is a number at all; nil: always.
	known func(consumer.Stats) bool
}

// descs are the metrics that are not counted here but read.
type descs struct {
	figures                   []figure
	state, workers, limits    *prometheus.Desc
	handler, claims, sourceUp *prometheus.Desc
	oldest, handlerLimit      *prometheus.Desc
	lag, unsettled            *prometheus.Desc
	route, breaker, latency   *prometheus.Desc
	operation, limitShare     *prometheus.Desc
}

func newDescs(label prometheus.Labels) *descs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("longshore_"+name, help, labels, label)
	}
	d := &descs{
		state:   desc("state", "Whether the consumer is in this state: 1 for one of them, 0 for the others.", "state"),
		workers: desc("workers", "Workers by what they do; stuck ones were replaced and are not among the others.", "state"),
		limits:  desc("workers_limit", "The least and the most workers, as last set.", "bound"),
		handler: desc("handler_duration_seconds",
			"Time of handler calls that returned nil. Calls of a worker in a row count with their mean."),
		claims: desc("claims", "Claims held: partitions on Kafka, 1 on JetStream while subscribed."),
		sourceUp: desc("source_up", "Whether the source, of several each of them, had contact with its broker when it last spoke of "+
			"it. Absent before that."),
		oldest: desc("oldest_unfinished_timestamp_seconds",
			"Time of the oldest message that was received and is not settled, as its producer or broker set it. Absent where there is "+
				"none."),

		lag: desc("lag_messages", "Messages at the broker that were never delivered to anybody, by partition, empty where "+
			"there are none. Absent while unknown.", "topic", "partition"),
		unsettled: desc("unsettled_messages", "Messages at the broker that are not settled, delivered or not, by partition as lag. "+
			"Absent while unknown.", "topic", "partition"),

		route: desc("route_duration_seconds", "Time of the calls of a route's handler, of those that failed, too.", "route",
			"handler", "outcome"),
		operation: desc("broker_operation_duration_seconds",
			"Time of requests to the broker: fetch asks for messages and waits for them, settle says what became of some.",
			"operation", "outcome"),
		breaker: desc("circuit_breaker_state", "Whether a circuit breaker is in this state: 1 for one of them, 0 for the others.",
			"breaker", "state"),
		latency: desc("end_to_end_seconds", "Age of handled messages when they were acked: since the time that their producer or "+
			"broker set."),

		handlerLimit: desc("handler_limit", "The limits of handlers, as last set, by name and setting.", "limit", "setting"),
		limitShare: desc("handler_limit_share", "Which part of a limit of handlers this process has: below 1 where several "+
			"processes share it.", "limit"),
	}
	d.addGauges(desc)
	d.addCounters(desc)
	return d
}

// describer makes the description of a metric.
type describer func(name, help string, labels ...string) *prometheus.Desc

// addGauges adds those of the figures that go up and down.
func (d *descs) addGauges(desc describer) {
	gauge := func(name, help string, of func(consumer.Stats) float64) *figure {
		d.figures = append(d.figures, figure{desc: desc(name, help), kind: prometheus.GaugeValue, of: of})
		return &d.figures[len(d.figures)-1]
	}
	gauge("paused", "Whether somebody has paused the consumer: 1 until it is resumed.", func(s consumer.Stats) float64 {
		if s.Paused {
			return 1
		}
		return 0
	})
	gauge("in_flight_messages", "Messages received and not settled.", func(s consumer.Stats) float64 { return float64(s.InFlight) })
	gauge("queue_messages", "Messages that wait here for a worker.",
		func(s consumer.Stats) float64 { return float64(s.Pool.Backlog) })
	gauge("parked_messages", "Messages that wait here for their next attempt, put off ones included.",
		func(s consumer.Stats) float64 { return float64(s.Parked) })
	gauge("put_off_messages", "Messages that wait here since a limit, or their handler, put them off; they did not fail.",
		func(s consumer.Stats) float64 { return float64(s.PutOff) })
	gauge("delayed_dead_letters", "Dead letters that could not be stored so far, and are held here and tried again.",
		func(s consumer.Stats) float64 { return float64(s.LettersDelayed) })
	gauge("lanes", "Keys or partitions that have a message at large, where there is an order.",
		func(s consumer.Stats) float64 { return float64(s.Lanes) })
	gauge("lane_waiting_messages", "Messages that wait here for the one before them in their order.",
		func(s consumer.Stats) float64 { return float64(s.Waiting) })
	gauge("full_lanes", "Lanes that are full: nothing more is taken of their partition, or of their source.",
		func(s consumer.Stats) float64 { return float64(s.FullLanes) })
	gauge("held_messages", "Of the lag, what the broker gives nobody for now, since somebody has paused the consumer there. Absent "+
		"while unknown.", func(s consumer.Stats) float64 { return float64(s.Lag.Held) }).
		known = func(s consumer.Stats) bool { return !s.Lag.At.IsZero() }
	gauge("deliveries_full", "Whether as many messages are delivered and not settled, over all processes, as may be. Absent while "+
		"unknown.", func(s consumer.Stats) float64 {
		if s.Lag.Full {
			return 1
		}
		return 0
	}).known = func(s consumer.Stats) bool { return !s.Lag.At.IsZero() }
	gauge("stuck_handlers", "Handlers that were replaced and have not returned.",
		func(s consumer.Stats) float64 { return float64(s.Stuck) })
	gauge("lag_timestamp_seconds", "When lag and unsettled were learned. Absent while unknown.",
		func(s consumer.Stats) float64 { return float64(s.Lag.At.UnixNano()) / 1e9 }).
		known = func(s consumer.Stats) bool { return !s.Lag.At.IsZero() }
	gauge("last_progress_timestamp_seconds", "When a handler last returned nil, or skipped. Absent before the first time.",
		func(s consumer.Stats) float64 { return float64(s.LastProgress.UnixNano()) / 1e9 }).
		known = func(s consumer.Stats) bool { return !s.LastProgress.IsZero() }
}

// addCounters adds those of the figures that only grow.
func (d *descs) addCounters(desc describer) {
	counter := func(name, help string, of func(consumer.Stats) int64) {
		d.figures = append(d.figures, figure{desc: desc(name, help), kind: prometheus.CounterValue,
			of: func(s consumer.Stats) float64 { return float64(of(s)) }})
	}
	counter("received_messages_total", "Messages received from the source, redeliveries included.",
		func(s consumer.Stats) int64 { return s.Received })
	counter("handled_messages_total", "Messages acked because a handler returned nil.",
		func(s consumer.Stats) int64 { return s.Handled })
	counter("skipped_messages_total", "Messages acked because a handler returned Skip.",
		func(s consumer.Stats) int64 { return s.Skipped })
	counter("retried_messages_total", "Failed runs whose message is tried again.", func(s consumer.Stats) int64 { return s.Retried })
	counter("deferred_calls_total", "Handler calls that put their message off because a limit was reached.",
		func(s consumer.Stats) int64 { return s.Limited })
	counter("retry_published_messages_total", "Failed messages published to a retry topic, confirmed and acked.",
		func(s consumer.Stats) int64 { return s.RetryPublished })
	counter("dead_lettered_messages_total", "Dead letters published, confirmed and acked.",
		func(s consumer.Stats) int64 { return s.DeadLettered })
	counter("lost_settles_total", "Settles that came too late or failed; those messages come again.",
		func(s consumer.Stats) int64 { return s.Lost })
	counter("unordered_messages_total", "Messages without a key in an order by key.",
		func(s consumer.Stats) int64 { return s.Unordered })
	counter("gap_messages_total", "Messages that the broker no longer had when their turn came, at least.",
		func(s consumer.Stats) int64 { return s.Gaps })
	counter("idle_reports_total", "Idle timeouts that workers reported.", func(s consumer.Stats) int64 { return s.Pool.Reports })
}

func (d *descs) describe(ch chan<- *prometheus.Desc) {
	for _, f := range d.figures {
		ch <- f.desc
	}
	for _, one := range []*prometheus.Desc{d.state, d.workers, d.limits, d.handler, d.claims, d.sourceUp, d.oldest, d.handlerLimit,
		d.limitShare, d.lag, d.unsettled, d.route, d.operation, d.breaker, d.latency} {
		ch <- one
	}
}

func (d *descs) collect(ch chan<- prometheus.Metric, s consumer.Stats) {
	for _, f := range d.figures {
		if f.known == nil || f.known(s) {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(s))
		}
	}
	gauge := func(desc *prometheus.Desc, v int, label string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(v), label)
	}
	for state := consumer.Created; state <= consumer.Stopped; state++ {
		in := 0
		if state == s.State {
			in = 1
		}
		gauge(d.state, in, state.String())
	}
	gauge(d.workers, s.Pool.Busy, "busy")
	gauge(d.workers, max(0, s.Pool.Live-s.Pool.Busy), "idle")
	gauge(d.workers, s.Pool.Stuck, "stuck")
	gauge(d.limits, s.Pool.Min, "min")
	gauge(d.limits, s.Pool.Max, "max")
}

// text is s as a label can be: one that is no UTF-8 panics in a goroutine of the registry's, and ends the process.
func text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.Trim(strconv.Quote(s), `"`)
}

// collectLag has a series for each partition: two processes may tell of one on its way between them, and of JetStream all tell of
// the same.
func (d *descs) collectLag(ch chan<- prometheus.Metric, rows []broker.PartitionLag) {
	for _, row := range rows {
		partition := ""
		if row.Topic != "" {
			partition = strconv.Itoa(int(row.Partition))
		}
		topic := text(row.Topic)
		ch <- prometheus.MustNewConstMetric(d.lag, prometheus.GaugeValue, float64(row.Waiting), topic, partition)
		ch <- prometheus.MustNewConstMetric(d.unsettled, prometheus.GaugeValue, float64(row.Unsettled), topic, partition)
	}
}
