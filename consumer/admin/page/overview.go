package page

import (
	"math"
	"net/http"

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
	Now   sample2
	Spark chart.Picture
	Boxes bool // has dead letters
}

// sample2 is a sample for templates, which see exported fields only.
type sample2 struct{ Handled, Failed, P50, P99 float64 }

func (s *site) overviewView(r *http.Request) overviewView {
	v := overviewView{shell: s.shell(r, "Consumers")}
	for _, w := range s.all {
		st := w.target().Stats()
		latest := w.history.latest(trendSeconds)
		v.Rows = append(v.Rows, overviewRow{
			Name: w.name, Glance: glance(st, w.target().Ready(), latest), State: stateText(st), Stats: st, Lag: unknown(st.Lag.Waiting),
			Now: last(latest), Spark: spark(w, v.Now), Boxes: len(w.sources.Letters) > 0,
		})
	}
	return v
}

func (s *site) overview(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "overview", s.overviewView(r))
}

func (s *site) overviewLive(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "overview-live", s.overviewView(r))
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
		return sample2{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	}
	x := latest[len(latest)-1]
	return sample2{x.handled, x.failed, x.p50, x.p99}
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

func (s *site) eventsView(r *http.Request) eventsView {
	return eventsView{s.shell(r, "Events"), s.page.events.newest(keptEvents)}
}

func (s *site) eventsPage(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "events", s.eventsView(r))
}

func (s *site) eventsLive(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "events-live", s.eventsView(r))
}
