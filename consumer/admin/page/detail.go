package page

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
)

// How many rows the tables of a consumer have.
const (
	shownDecisions = 15
	shownFailures  = 10
	shownCalls     = 15
	shownParked    = 10
)

// A detailView is one consumer.
type detailView struct {
	shell
	Name     string
	Span     span
	Spans    []span
	Stats    consumer.Stats
	Lag      *int64
	LagAge   string
	State    string
	Concerns []string
	Glance
	Workers   string
	Figures   sample2
	Charts    []Chart
	Decisions []Decision
	Failures  []Failure
	Open      bool // the three that follow are known
	Keys      bool // and their keys may be shown
	Errors    bool // the text of errors may be, which may have of a payload
	Claims    []consumer.ClaimStatus
	Calls     []consumer.Call
	Parked    []consumer.ParkedMessage
	Lags      []Lag
	LagErr    string
	JetStream bool // it says what is pending
	OwnLags   []broker.PartitionLag
	Limits    []limitView
	Boxes     []boxView
	Job       *jobView
	Wrong     string
	Said      string
}

// A limitView is a limit of handlers with its settings.
type limitView struct {
	Name, Kind string
	Shared     bool
	Part       string // of it that this process has, in percent, where it is shared
	Settings   []settingView
}

type settingView struct {
	Name, Value string
}

// A boxView is a place of dead letters.
type boxView struct{ Topic string }

// details show one consumer.
type details struct {
	*frame
	jobs     *jobs
	hideKeys bool
}

func (d *details) detailView(r *http.Request, w *watched) detailView {
	q := r.URL.Query() // not FormValue, which reads a body that somebody sends with a GET
	v := detailView{shell: d.shell(r, w.name), Name: w.name, Span: spanOf(q.Get("span")), Spans: spans, Said: said[q.Get("said")]}
	t := w.target()
	v.Stats = t.Stats()
	v.Lag, v.LagAge, v.State = unknown(v.Stats.Lag.Waiting), oldLag(v.Stats.Lag, v.Now), stateText(v.Stats)
	latest := w.history.latest(trendSeconds)
	v.Glance, v.Figures = w.glance(v.Stats, latest, v.Now), last(latest)
	v.Concerns = concernsOf(t, v.Stats)
	if o, ok := t.(open); ok {
		v.Open, v.Claims, v.Calls, v.Parked = true, o.Claims(), o.Calls(shownCalls), o.Parked(shownParked)
		v.Concerns = append(v.Concerns, stalled(v.Claims)...)
	}
	v.Keys, v.Errors = v.Member && !d.hideKeys, v.Member || !d.hideKeys
	v.Decisions, v.Failures = w.diary.newest(shownDecisions, shownFailures)
	v.Workers = workersText(v.Stats, v.Decisions, v.Now)
	v.Charts = charts(w, v.Span, v.Now)
	rows, err := w.lags.get(r.Context(), v.Now)
	v.JetStream = slices.ContainsFunc(rows, func(l Lag) bool { return l.Pending != nil })
	if v.Lags = rows; err != nil {
		v.LagErr = plain(err.Error(), fieldBytes)
	}
	if w.lags.read == nil {
		v.OwnLags = ownLags(t)
	}
	v.Job = d.jobs.view(w.name)
	for _, l := range w.sources.Letters {
		v.Boxes = append(v.Boxes, boxView{l.Topic})
	}
	return v
}

// limitViews are a consumer's limits of handlers as they are.
func limitViews(w *watched) (all []limitView) {
	limits := w.served.Load().limits
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		l := limitView{Name: name, Kind: limits[name].Kind()}
		if s, ok := limits[name].(admin.SharedLimit); ok {
			var part float64
			part, l.Shared = s.Share()
			l.Part = strconv.FormatFloat(100*part, 'f', 1, 64)
		}
		settings := limits[name].Settings()
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			one := settingView{Name: key}
			if x := settings[key]; !math.IsInf(x, 0) {
				one.Value = formNumber(x)
			}
			l.Settings = append(l.Settings, one)
		}
		all = append(all, l)
	}
	return all
}

func (d *details) detail(w http.ResponseWriter, r *http.Request, c *watched) {
	v := d.detailView(r, c)
	v.Limits = limitViews(c)
	d.show(w, r, http.StatusOK, "detail", v)
}

func (d *details) detailLive(w http.ResponseWriter, r *http.Request, c *watched) {
	d.show(w, r, http.StatusOK, "detail-live", d.detailView(r, c))
}
