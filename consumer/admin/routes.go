package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	if s.cfg.Gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{
			ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4,
		}))
	}
	mux.Handle("POST /consumers/{name}/pause", s.control(func(_ *http.Request, t Target) error { return t.Pause() }))
	mux.Handle("POST /consumers/{name}/resume", s.control(func(_ *http.Request, t Target) error { return t.Resume() }))
	mux.Handle("POST /consumers/{name}/limits", s.control(setLimits))
	return mux
}

func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	s.report(w, func(t Target) error { return t.Health(s.cfg.NoProgress) })
}

var errNotReady = errors.New("not running, or without contact with its broker")

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	s.report(w, func(t Target) error {
		if !t.Ready() {
			return errNotReady
		}
		return nil
	})
}

// report answers 200, or 503 with a line for each consumer that something is wrong with.
func (s *Server) report(w http.ResponseWriter, ask func(Target) error) {
	var wrong strings.Builder
	for _, name := range s.names {
		if err := ask(s.cfg.Targets[name]); err != nil {
			fmt.Fprintf(&wrong, "%s: %v\n", name, err)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if wrong.Len() > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, wrong.String())
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

// A badRequest is the client's mistake.
type badRequest struct{ error }

func (b badRequest) Unwrap() error { return b.error }

// control lets only who has the token through to what do does with the consumer that the path names.
func (s *Server) control(do func(*http.Request, Target) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.allowed(w, r) {
			return
		}
		name := r.PathValue("name")
		t, ok := s.cfg.Targets[name]
		if !ok {
			http.Error(w, "no such consumer; there are: "+strings.Join(s.names, ", "), http.StatusNotFound)
			return
		}
		err := do(r, t)
		s.cfg.Logger.Info().Str("event", "admin_control").Str("consumer", name).Str("path", r.URL.Path).AnErr("error", err).Send()
		var large *http.MaxBytesError
		var bad badRequest
		switch {
		case errors.As(err, &large):
			http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		case errors.As(err, &bad):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusConflict)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{\"ok\":true}\n")
		}
	})
}

// allowed looks at the token. It compares digests, so the time it takes tells neither the token's length nor how much of it was right.
func (s *Server) allowed(w http.ResponseWriter, r *http.Request) bool {
	if s.cfg.Token == "" {
		http.Error(w, "controls are off: no token is configured", http.StatusForbidden)
		return false
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.cfg.Token))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
		return false
	}
	return true
}

// limits is the body of a POST to limits.
type limits struct {
	Min *int `json:"min"`
	Max *int `json:"max"`
}

func setLimits(r *http.Request, t Target) error {
	var l limits
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return badRequest{fmt.Errorf(`want {"min": 1, "max": 64}: %w`, err)}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return err
		}
		return badRequest{errors.New(`want {"min": 1, "max": 64} and nothing after it`)}
	}
	if l.Min == nil || l.Max == nil {
		return badRequest{errors.New("min and max are both required")}
	}
	if err := t.SetLimits(*l.Min, *l.Max); err != nil {
		return badRequest{err}
	}
	return nil
}
