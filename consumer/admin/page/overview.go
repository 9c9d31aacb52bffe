package page

import (
	"math"
	"net/http"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin/page/internal/chart"
)

// An overviewView is all consumers.
type overviewView struct {
	shell
	Rows []overviewRow
}

type overviewRow struct {
	Name string
	Glance
	State string
	Stats consumer.Stats
	Lag   *int64
	// LagAge says that it is an old one; "": it is not.
	LagAge string
	Now    sample2
	Spark  chart.Picture
	Boxes  bool // has dead letters
	// Concerns are what is wrong beside that: where dead letters have no place.
	Concerns []string
}

// sample2 is a sample for templates, which see exported fields only.
type sample2 struct{ Handled, Skipped, Failed, P50, P99 float64 }

// overviews show all consumers, and what happened last.
type overviews struct {
	*frame
	all        []*watched // by name
	events     *eventLog
	hideErrors bool // from who has not logged in
}

func (o *overviews) overviewView(r *http.Request) overviewView {
	v := overviewView{shell: o.shell(r, "Consumers")}
	for _, w := range o.all {
		st := w.target().Stats()
		latest := w.history.latest(trendSeconds)
		v.Rows = append(v.Rows, overviewRow{
			Name: w.name, Glance: w.glance(st, latest, v.Now), State: stateText(st), Stats: st, Lag: unknown(st.Lag.Waiting),
			LagAge: oldLag(st.Lag, v.Now), Now: last(latest), Spark: spark(w, v.Now), Boxes: len(w.sources.Letters) > 0,
			Concerns: concernsOf(w.target(), st),
		})
	}
	return v
}

func (o *overviews) overview(w http.ResponseWriter, r *http.Request) {
	o.show(w, r, http.StatusOK, "overview", o.overviewView(r))
}

func (o *overviews) overviewLive(w http.ResponseWriter, r *http.Request) {
	o.show(w, r, http.StatusOK, "overview-live", o.overviewView(r))
}

func stateText(s consumer.Stats) string {
	if s.Paused {
		return "paused"
	}
	return s.State.String()
}

// last is the latest sample.
func last(latest []sample) sample2 {
	if len(latest) == 0 {
		return sample2{math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	}
	x := latest[len(latest)-1]
	return sample2{x.handled, x.skipped, x.failed, x.p50, x.p99}
}

// staleLag is after how long a lag may not be true any more. While there is contact, a source asks every few seconds.
const staleLag = 30 * time.Second

// oldLag says how old a lag is that may not be true any more; "": it is fresh, or not known.
func oldLag(l broker.Lag, now time.Time) string {
	if age := now.Sub(l.At); l.Waiting >= 0 && !l.At.IsZero() && age >= staleLag {
		return duration(age) + " ago"
	}
	return ""
}

// unknown is nil for a negative number.
func unknown(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// An eventsView is what happened last.
type eventsView struct {
	shell
	Events []Event
}

func (o *overviews) eventsView(r *http.Request) eventsView {
	v := eventsView{o.shell(r, "Events"), o.events.newest(keptEvents)}
	if o.hideErrors && !v.Member {
		for i := range v.Events {
			v.Events[i].Text = v.Events[i].Bare
		}
	}
	return v
}

func (o *overviews) eventsPage(w http.ResponseWriter, r *http.Request) {
	o.show(w, r, http.StatusOK, "events", o.eventsView(r))
}

func (o *overviews) eventsLive(w http.ResponseWriter, r *http.Request) {
	o.show(w, r, http.StatusOK, "events-live", o.eventsView(r))
}
