package page

import (
	"net/http"
)

// policy is the Content-Security-Policy of the page: everything comes from here, and nothing of it is written into the HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action " +
	"'self'; base-uri 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types longshore"

// maxForm bounds what is read of a request, by bytes: an edited letter is the largest.
const maxForm = 2 << 20

// guard stands before all of the page's routes, behind the admin server's own guard: the policy, who sends a form, and its size.
func guard(next http.Handler) http.Handler {
	forms := http.NewCrossOriginProtection()
	return forms.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		next.ServeHTTP(w, r)
	}))
}
