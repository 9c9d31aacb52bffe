package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/longshoremq/longshore/internal/replicas"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
)

// A scalerPage tells the same over HTTP, for who has Prometheus and an autoscaler of Kubernetes, or none of both.
type scalerPage struct {
	targets  map[string]*scalerTarget
	names    []string
	settings replicas.Settings
	log      zerolog.Logger
}

// A scalerRow is what one consumer needs. What is unknown is null, and error says why. Its names are stable.
type scalerRow struct {
	Consumer string   `json:"consumer"`
	Replicas *int     `json:"replicas"` // a whole number
	Need     *float64 `json:"need"`     // the same before it was rounded up
	Active   *bool    `json:"active"`
	Reason   string   `json:"reason,omitempty"`
	Why      string   `json:"why,omitempty"`
	Error    string   `json:"error,omitempty"`

	Arrivals   *float64 `json:"arrivals_per_second"`
	Settled    *float64 `json:"settled_per_second"`
	Backlog    *int64   `json:"backlog"`
	Later      *int64   `json:"in_retry_topics"`
	Held       *int64   `json:"held"` // by the broker
	Processes  *int     `json:"processes"`
	PerReplica *float64 `json:"per_replica"` // by what processes tell
}

func newScalerPage(targets map[string]*scalerTarget, s replicas.Settings, log zerolog.Logger) *scalerPage {
	return &scalerPage{targets: targets, names: slices.Sorted(maps.Keys(targets)), settings: s, log: log}
}

// serve serves until ctx ends.
func (p *scalerPage) serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{
		Handler: p.routes(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: log.New(logLines{p.log}, "", 0),
	}
	var serving errgroup.Group
	serving.Go(func() error { return s.Serve(l) })
	ended := make(chan struct{})
	cut := context.AfterFunc(ctx, func() { _ = s.Close(); close(ended) })
	err := serving.Wait()
	if !cut() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("scaler: serving: %w", err)
}

func (p *scalerPage) routes() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(p)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /scaler", p.list)
	mux.HandleFunc("GET /scaler/{name}", p.show)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// list answers with all consumers, also with those of which nothing is known.
func (p *scalerPage) list(w http.ResponseWriter, r *http.Request) {
	rows := make([]scalerRow, len(p.names))
	for i, name := range p.names {
		rows[i] = p.row(r.Context(), p.targets[name])
	}
	answerJSON(w, http.StatusOK, map[string][]scalerRow{"consumers": rows})
}

// show answers with one, and with 503 where it is unknown: who reads a number takes none for 0.
func (p *scalerPage) show(w http.ResponseWriter, r *http.Request) {
	t, ok := p.targets[r.PathValue("name")]
	if !ok {
		http.Error(w, "no such consumer", http.StatusNotFound)
		return
	}
	row, code := p.row(r.Context(), t), http.StatusOK
	if row.Error != "" {
		code = http.StatusServiceUnavailable
	}
	answerJSON(w, code, row)
}

func answerJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// row does not wait.
func (p *scalerPage) row(ctx context.Context, t *scalerTarget) scalerRow {
	at, cancel := context.WithCancel(ctx)
	cancel()
	a, f, err := t.answer(at, p.settings)
	row := scalerRow{Consumer: t.name}
	if err != nil {
		row.Error = err.Error()
		return row
	}
	whole, need := a.Whole(), round(a.Replicas)
	row.Replicas, row.Need, row.Active, row.Reason, row.Why = &whole, &need, &a.Active, string(a.Reason), a.Why
	if f.Known {
		in, out := round(f.In), round(f.Out)
		row.Arrivals, row.Settled = &in, &out
	}
	if !f.Missing {
		row.Backlog, row.Later, row.Held = &f.Backlog, &f.Later, &f.Held
	}
	if f.Members >= 0 {
		row.Processes = &f.Members
	}
	if f.Each > 0 {
		each := round(f.Each)
		row.PerReplica = &each
	}
	return row
}

// round leaves three digits; what is not nothing is not made 0, which an autoscaler takes for no work.
func round(n float64) float64 {
	if n > 0 {
		return max(0.001, math.Round(n*1000)/1000)
	}
	return 0
}

var (
	neededDesc = prometheus.NewDesc("longshore_replicas_needed",
		"How many processes a consumer needs; absent where that is not known.", []string{"consumer"}, nil)
	activeDesc = prometheus.NewDesc("longshore_replicas_active", "1 where there is work for one process at least.",
		[]string{"consumer"}, nil)
)

// Describe is of a prometheus.Collector.
func (p *scalerPage) Describe(to chan<- *prometheus.Desc) { to <- neededDesc; to <- activeDesc }

// Collect leaves out what is unknown.
func (p *scalerPage) Collect(to chan<- prometheus.Metric) {
	for _, name := range p.names {
		row := p.row(context.Background(), p.targets[name])
		if row.Need == nil {
			continue
		}
		active := 0.0
		if *row.Active {
			active = 1
		}
		to <- prometheus.MustNewConstMetric(neededDesc, prometheus.GaugeValue, *row.Need, name)
		to <- prometheus.MustNewConstMetric(activeDesc, prometheus.GaugeValue, active, name)
	}
}
