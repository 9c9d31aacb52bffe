package page

import (
	"net/http"
	"time"
)

// policy is the Content-Security-Policy of the page: everything comes from here, and nothing of it is written into the HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action " +
	"'self'; base-uri 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types longshore"

// guard stands before all of the page's routes, behind the admin server's own guard: the policy, and who sends a form.
func guard(next http.Handler) http.Handler {
	forms := http.NewCrossOriginProtection()
	return forms.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		next.ServeHTTP(w, r)
	}))
}

// maxForm bounds a form, by bytes: an edited letter is the largest.
const maxForm = 2 << 20

// member lets only those in who have logged in; all others are sent to the login. Its form is read here, for nobody else's is.
func (s *site) member(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.sessions.has(r, time.Now()) {
			s.refused(r, http.StatusUnauthorized)
			http.Redirect(w, r, "/ui/login", http.StatusSeeOther)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			s.fail(w, r, http.StatusBadRequest, err)
			return
		}
		next(w, r)
	}
}

// refused tells of what was not done; at most ten lines a second.
func (s *site) refused(r *http.Request, code int) {
	s.refusals.Warn().Str("event", "admin_refused").Str("route", r.Pattern).Str("remote", r.RemoteAddr).Int("status", code).Send()
}
