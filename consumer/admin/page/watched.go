package page

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/longshoremq/longshore/deadletters"
)

// Sources are what there is to be shown of a consumer beside what it tells itself. The zero value has nothing.
type Sources struct {
	// Letters are its dead letters, one for each topic or subject that they go to. Defaults to none.
	Letters []Letters
	// Lags asks the broker how far the consumer is: while somebody looks, every 2 s at most, one call at a time. Defaults to none:
	// the lags that the consumer knows are shown.
	Lags func(ctx context.Context) ([]Lag, error)
	// Times has how long its handlers take: the collector whose Observe is among the consumer's observers. Defaults to none: the
	// chart of them is left out.
	Times *metrics.Collector
}

// Letters are the dead letters of one topic or subject.
type Letters struct {
	// Config says where they are; without a Publisher they can be seen and not replayed.
	deadletters.Config
	// Handler keeps the page to the letters that a consumer of that name gave up. Set it to the consumer's where others have theirs
	// in the same topic: to delete all letters of one would delete theirs. Defaults to none: all letters of the topic are meant.
	Handler string
	// Allow makes what deadletters.Replay.Allow is: whether a letter may name a topic as where it came from. Defaults to none: a
	// replay goes only to a topic that is named.
	Allow func(ctx context.Context) (func(topic string) bool, error)
}

// A Lag is how far a consumer is, as the broker says: in a partition on Kafka, else in all. What is unknown is nil.
type Lag struct {
	// Of is the partition or durable.
	Of string
	// Committed: all below it (Kafka), or up to it (JetStream), is settled.
	Committed *int64
	// End is the offset that comes next (Kafka), or the last sequence (JetStream).
	End *int64
	// Lag is how many are between, and Finished how many of them are handled already and wait only for one before them.
	Lag, Finished *int64
	// Pending of JetStream were delivered and not acked, Redelivered are those of them that were delivered more than once.
	Pending, Redelivered *int64
	// Err is why nothing is known.
	Err string
}

// A watched consumer.
type watched struct {
	name    string
	sources Sources
	history *history
	diary   *diary
	lags    *lagCache
	served  atomic.Pointer[served]
	mark    metrics.Mark // of Sources.Times: sample's
}

// served is what the admin server has of a consumer.
type served struct {
	target   admin.Target
	limits   map[string]admin.Limit
	breakers map[string]admin.Breaker
}

func newWatched(name string, s Sources) *watched {
	return &watched{name: name, sources: s, history: newHistory(), diary: newDiary(), lags: &lagCache{read: s.Lags}}
}

func (w *watched) serve(s *served) { w.served.Store(s) }

// target is the consumer; it is served, or nobody could ask.
func (w *watched) target() admin.Target { return w.served.Load().target }

// glance says how it is, at this moment.
func (w *watched) glance(s consumer.Stats, latest []sample, now time.Time) Glance {
	of := w.served.Load()
	ready := of.target.Ready()
	l := look{stats: s, ready: ready, broken: brokenOf(of.breakers, now), limits: slices.Sorted(maps.Keys(of.limits)),
		latest: latest}
	if a, ok := of.target.(aged); ok && kept(s) > 0 { // else nothing is said of it
		if at := a.Oldest(); !at.IsZero() {
			l.oldest = now.Sub(at)
		}
	}
	g := glance(l)
	if said := w.diary.sourceSaid(); said != "" && !ready && s.State <= consumer.Running { // it waits for what that is about
		g.Text += " Its source said: " + plain(said, fieldBytes)
	}
	return g
}

// sample takes the figures of a moment down. One goroutine calls it.
func (w *watched) sample(now time.Time) {
	s := w.served.Load()
	if s == nil {
		return
	}
	p50, p99 := math.NaN(), math.NaN()
	if w.sources.Times != nil {
		if q := w.sources.Times.Quantiles(&w.mark, 0.5, 0.99); q != nil {
			p50, p99 = inMS(q[0]), inMS(q[1])
		}
	}
	w.history.add(now, s.target.Stats(), p50, p99)
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// A partitioned target knows the lag of each partition that it holds.
type partitioned interface {
	LagByPartition() []broker.PartitionLag
}

// An open target tells what it has in hand: a *consumer.Consumer.
type open interface {
	Claims() []consumer.ClaimStatus
	Calls(n int) []consumer.Call
	Parked(n int) []consumer.ParkedMessage
}

// An aged target knows the time of its oldest message in hand.
type aged interface{ Oldest() time.Time }

// A concerned target has more to tell than whether it is ready.
type concerned interface{ Concerns() []string }
