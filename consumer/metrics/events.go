package metrics

import (
	"slices"

	"github.com/longshoremq/longshore/consumer"
	"github.com/prometheus/client_golang/prometheus"
)

// The values that labels may have. What is not listed becomes other.
var (
	failureClasses  = append(consumer.FailureClasses(), other)
	giveBackReasons = []string{"revoked", "drain", "shutdown", "lost", other}
	sourceKinds     = []string{"assigned", "ended", "down", "up", "gap", "unconfirmed", "stalled", "warning", "notice", other}
)

const other = "other"

func known[T ~string](list []T, value T) string {
	if slices.Contains(list, value) {
		return string(value)
	}
	return other
}

func direction(from, to int) string {
	if to < from {
		return "down"
	}
	return "up"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// events are the metrics that are counted here, from what is observed.
type events struct {
	failed, exhausted, letterDelays, retryPublishFailures, givenBack, stuck, decisions, source *prometheus.CounterVec
}

func newEvents(label prometheus.Labels) *events {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "longshore_" + name, Help: help, ConstLabels: label}, labels)
	}
	e := &events{
		failed: vec("failed_runs_total", "Handler runs that failed, by class of the failure.", "class"),
		exhausted: vec("exhausted_retries_total", "Failed runs of messages that have used up their attempts, and are tried "+
			"again all the same: there is no place for dead letters."),
		letterDelays: vec("dead_letter_delays_total",
			"Dead letters that could not be published; refused: the broker does not take them as they and it are.", "refused"),
		retryPublishFailures: vec("retry_publish_failures_total",
			"Failed messages that could not be published to a retry topic, and wait in the process."),
		givenBack: vec("given_back_messages_total", "Messages given back to the broker without a finished run, by reason.",
			"reason"),
		stuck: vec("stuck_handlers_total", "Handlers that did not return although their context had ended.", "replaced"),
		decisions: vec("scale_decisions_total", "Changes of the number of workers, by direction and reason.", "direction",
			"reason"),
		source: vec("source_events_total", "What the source said, by kind.", "kind"),
	}
	// A counter that appears at its first increase hides that increase from rate().
	zero(e.failed, failureClasses)
	zero(e.givenBack, giveBackReasons)
	zero(e.source, sourceKinds)
	zero(e.letterDelays, []string{"yes", "no"})
	e.retryPublishFailures.WithLabelValues()
	e.exhausted.WithLabelValues()
	zero(e.stuck, []string{"yes", "no"})
	return e
}

func zero(v *prometheus.CounterVec, values []string) {
	for _, value := range values {
		v.WithLabelValues(value)
	}
}

func (e *events) all() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{e.failed, e.exhausted, e.letterDelays, e.retryPublishFailures, e.givenBack, e.stuck, e.decisions,
		e.source}
}
