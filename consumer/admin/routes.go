package admin

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
)

// A route is a request that is answered.
type route struct {
	pattern string
	means   string // for people, who ask for /
	handler http.Handler
}

// table is all that is answered.
func (s *Server) table() []route {
	all := []route{
		{"GET /livez", "200; 503 where a restart would help", http.HandlerFunc(s.livez)},
		{"GET /readyz", "200; 503 while a consumer is not running or has no contact with its broker", http.HandlerFunc(s.readyz)},
	}
	if s.cfg.Gatherer != nil {
		h := promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
		all = append(all, route{"GET /metrics", "Prometheus", s.made(h.ServeHTTP)})
	}
	if s.page != nil {
		all = append(all, route{"GET /ui/", "the web page", s.page})
	}
	pause := s.control(func(_ *http.Request, t Target) (asked, error) { return nil, t.Pause() })
	resume := s.control(func(_ *http.Request, t Target) (asked, error) { return nil, t.Resume() })
	return append(all,
		route{"GET /consumers", "how all consumers are, as JSON", http.HandlerFunc(s.list)},
		route{"GET /consumers/{name}", "how one is", http.HandlerFunc(s.show)},
		route{"GET /consumers/{name}/messages", "what is in handlers or waits for its next attempt; keys with the token",
			http.HandlerFunc(s.messages)},
		route{"POST /consumers/{name}/pause", "stops taking messages; needs the token, as all POSTs", pause},
		route{"POST /consumers/{name}/resume", "goes on", resume},
		route{"GET /consumers/{name}/limits", "the limits of its workers and handlers, as JSON", http.HandlerFunc(s.showLimits)},
		route{"POST /consumers/{name}/limits", `{"min": 1, "max": 64} sets those of its workers`, s.control(setLimits)},
		route{"POST /consumers/{name}/limits/{limit}", "sets those of its handlers", s.control(s.changeLimit)},
	)
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	table := s.table()
	for _, r := range table {
		mux.Handle(r.pattern, r.handler)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if s.page != nil && strings.Contains(r.Header.Get("Accept"), "text/html") { // a browser
			http.Redirect(w, r, pagePath, http.StatusSeeOther)
			return
		}
		s.index(w, table)
	})
	return mux
}

// pagePath is where the web page begins.
const pagePath = "/ui/"

// index says what can be asked for, to somebody who has only the address.
func (s *Server) index(w http.ResponseWriter, table []route) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintf(w, "longshore\nconsumers: %s\n\n", strings.Join(s.names, ", "))
	for _, r := range table {
		method, path, _ := strings.Cut(r.pattern, " ")
		_, _ = fmt.Fprintf(w, "%-4s %-37s %s\n", method, path, r.means)
	}
}

func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	s.report(w, func(t Target) error { return t.Health(s.cfg.NoProgress) }, nil)
}

var errNotReady = errors.New("not running, or without contact with its broker")

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	s.report(w, func(t Target) error {
		if !t.Ready() {
			return errNotReady
		}
		return nil
	}, concernsOf)
}

// report answers 200, with what else there is to tell, or 503 with a line for each consumer that something is wrong with.
func (s *Server) report(w http.ResponseWriter, ask func(Target) error, also func(Target) []string) {
	var wrong strings.Builder
	for _, name := range s.names {
		if err := ask(s.cfg.Targets[name]); err != nil {
			fmt.Fprintf(&wrong, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; ")) // several are joined by lines
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if wrong.Len() > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, wrong.String())
		return
	}
	_, _ = io.WriteString(w, "ok\n")
	if also != nil {
		for _, name := range s.names {
			for _, text := range also(s.cfg.Targets[name]) {
				fmt.Fprintf(w, "%s: %s\n", name, text)
			}
		}
	}
}

// A concerned target has more to tell than whether it is ready.
type concerned interface{ Concerns() []string }

func concernsOf(t Target) []string {
	if c, ok := t.(concerned); ok {
		return c.Concerns()
	}
	return nil
}

// A badRequest is the client's mistake.
type badRequest struct{ error }

func (b badRequest) Unwrap() error { return b.error }

// target is the consumer that the path names; ok is false where there is none, and the client was told.
func (s *Server) target(w http.ResponseWriter, r *http.Request) (t Target, ok bool) {
	t, ok = s.cfg.Targets[r.PathValue("name")]
	if !ok {
		http.Error(w, "no such consumer; there are: "+strings.Join(s.names, ", "), http.StatusNotFound)
	}
	return t, ok
}

// asked is what a control asked for, beside its path, for the log.
type asked map[string]any

// control is the handler of a request that changes something. It checks the token, finds the consumer that the path names, and
// calls do.
func (s *Server) control(do func(*http.Request, Target) (asked, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.allowed(w, r) {
			return
		}
		t, ok := s.target(w, r)
		if !ok {
			return
		}
		name := r.PathValue("name")
		what, err := do(r, t)
		if err != nil {
			code := codeOf(err)
			s.refused(r, code).Str("consumer", name).Fields(map[string]any(what)).Err(err).Send()
			text := err.Error()
			if code == http.StatusRequestEntityTooLarge {
				text = "the body is too large"
			}
			http.Error(w, text, code)
			return
		}
		s.cfg.Logger.Info().Str("event", "admin_control").Str("consumer", name).Str("path", r.URL.Path).Str("remote", r.RemoteAddr).
			Fields(map[string]any(what)).Send()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{\"ok\":true}\n")
	})
}

// codeOf is the answer to a request that failed.
func codeOf(err error) int {
	var large *http.MaxBytesError
	var bad badRequest
	var gone missing
	switch {
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.As(err, &bad):
		return http.StatusBadRequest
	case errors.As(err, &gone):
		return http.StatusNotFound
	}
	return http.StatusConflict
}

// refused begins a line on a control that was not done: which route, for a path may be anything. At most ten a second are
// written: nobody without the token can fill the log.
func (s *Server) refused(r *http.Request, code int) *zerolog.Event {
	return s.refusals.Warn().Str("event", "admin_refused").Str("route", r.Pattern).Str("remote", r.RemoteAddr).Int("status", code)
}

// allowed looks at the token. It compares digests, so the time it takes tells neither the token's length nor how much of it was
// right.
func (s *Server) allowed(w http.ResponseWriter, r *http.Request) bool {
	if s.cfg.Token == "" {
		s.refused(r, http.StatusForbidden).Msg("controls are off: no token is configured")
		http.Error(w, "controls are off: no token is configured", http.StatusForbidden)
		return false
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.cfg.Token))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		s.refused(r, http.StatusUnauthorized).Msg("the token is missing or wrong")
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

func setLimits(r *http.Request, t Target) (asked, error) {
	var l limits
	if err := read(r, &l, `{"min": 1, "max": 64}`); err != nil {
		return nil, err
	}
	if l.Min == nil || l.Max == nil {
		return nil, badRequest{errors.New("min and max are both required")}
	}
	what := asked{"min": *l.Min, "max": *l.Max}
	if err := t.SetLimits(*l.Min, *l.Max); err != nil {
		return what, badRequest{err}
	}
	return what, nil
}

// read decodes a body, which looks like example: strictly, and to its end.
func read(r *http.Request, into any, example string) error {
	var body bytes.Buffer // at most maxBody
	d := json.NewDecoder(io.TeeReader(r.Body, &body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badRequest{fmt.Errorf("want %s: %w", example, err)}
	}
	if key, twice := repeated(body.Bytes()); twice {
		return badRequest{fmt.Errorf("want %s: %q is there twice", example, key)}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return err
		}
		return badRequest{fmt.Errorf("want %s and nothing after it", example)}
	}
	return nil
}

// repeated is a key that an object, which can be decoded, has twice, in whatever case: the last one would count in silence, and
// who looked at the body before us may have gone by the first.
func repeated(object []byte) (key string, twice bool) {
	d, seen := json.NewDecoder(bytes.NewReader(object)), map[string]bool{}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return "", false
		}
		key, _ = t.(string)
		folded := strings.ToLower(key)
		if seen[folded] {
			return key, true
		}
		seen[folded] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return "", false
		}
	}
	return "", false
}
