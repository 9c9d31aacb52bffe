package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
)

// limitsView is the answer to GET /consumers/{name}/limits. Its names are stable.
type limitsView struct {
	Workers  bounds               `json:"workers"`
	Handlers map[string]limitView `json:"handlers"`
}

// limitView is one limit of handlers. A setting without a bound is null.
type limitView struct {
	Kind     string              `json:"use"`
	Settings map[string]*float64 `json:"settings"`
	// Share is which part of it this process has, 0 to 1, where processes share it.
	Share *float64 `json:"share,omitempty"`
}

// showLimits tells the limits as they are. As /metrics, which tells the same, it needs no token.
func (s *Server) showLimits(w http.ResponseWriter, r *http.Request) {
	t, ok := s.target(w, r)
	if !ok {
		return
	}
	st := t.Stats()
	view := limitsView{Workers: bounds{st.Pool.Min, st.Pool.Max}, Handlers: map[string]limitView{}}
	for name, l := range s.cfg.Limits[r.PathValue("name")] {
		one := limitView{Kind: l.Kind(), Settings: map[string]*float64{}}
		if part, shared := shareOf(l); shared {
			one.Share = &part
		}
		for setting, v := range l.Settings() {
			one.Settings[setting] = nil
			if !math.IsInf(v, 0) {
				one.Settings[setting] = &v
			}
		}
		view.Handlers[name] = one
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(view)
}

// shareOf is which part of a limit this process has, where processes share it.
func shareOf(l Limit) (part float64, shared bool) {
	if s, ok := l.(SharedLimit); ok {
		return s.Share()
	}
	return 1, false
}

// A missing thing is not there.
type missing struct{ error }

func (m missing) Unwrap() error { return m.error }

// changeLimit changes the settings that the body names of the limit that the path names.
func (s *Server) changeLimit(r *http.Request, _ Target) (asked, error) {
	limits := s.cfg.Limits[r.PathValue("name")]
	l := limits[r.PathValue("limit")]
	if l == nil {
		return nil, missing{errors.New("no such limit; there are: " + strings.Join(slices.Sorted(maps.Keys(limits)), ", "))}
	}
	example := "an object with some of " + strings.Join(slices.Sorted(maps.Keys(l.Settings())), ", ")
	var body map[string]json.RawMessage
	if err := read(r, &body, example); err != nil {
		return nil, err
	}
	to := map[string]float64{}
	what := asked{"limit": r.PathValue("limit")}
	for name, text := range body {
		var v *float64
		if err := json.Unmarshal(text, &v); err != nil || v == nil {
			return what, badRequest{fmt.Errorf("%s: want a number", name)}
		}
		to[name] = *v
	}
	if err := l.Change(to); err != nil {
		return what, badRequest{err}
	}
	what["settings"] = to
	return what, nil
}
