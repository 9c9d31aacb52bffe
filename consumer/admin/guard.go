package admin

import (
	"fmt"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
)

// guard stands before all routes: panics, security headers, Host, odd paths, the size of the body, and the memory of answers.
func (s *Server) guard(next http.Handler, loopback bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.survive(w)
		secure(w.Header())
		plain := w
		w = &answer{ResponseWriter: plain, among: s.answers}
		switch {
		case loopback && !namesLoopback(r.Host):
			http.Error(w, "this address is served to this machine only", http.StatusMisdirectedRequest)
		case !clean(r.URL.Path): // the mux would redirect
			http.NotFound(w, r)
		case s.page != nil && strings.HasPrefix(r.URL.Path, pagePath):
			s.page.ServeHTTP(w, r) // bounds its forms itself
		case r.ContentLength > maxBodyBytes:
			http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		default:
			r.Body = http.MaxBytesReader(plain, r.Body, maxBodyBytes) // which asks net/http's own to close
			next.ServeHTTP(w, r)
		}
	})
}

// survive turns a panic into a 500 that says nothing of the inside.
func (s *Server) survive(w http.ResponseWriter) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.cfg.Logger.Error().Str("event", "admin_panic").Str("panic", fmt.Sprint(p)).Bytes("stack", debug.Stack()).Send()
	http.Error(w, "internal error", http.StatusInternalServerError)
}

func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// namesLoopback says whether a Host header names this machine. A page of evil.example whose name is rebound to 127.0.0.1 sends
// "evil.example".
func namesLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func clean(p string) bool {
	return strings.HasPrefix(p, "/") && (path.Clean(p) == p || p == pagePath)
}
