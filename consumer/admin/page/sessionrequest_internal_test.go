package page

import (
	"net/http"
	"net/http/httptest"
)

// with is a request that has a session's cookie.
func with(id string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/ui/", nil)
	r.AddCookie(&http.Cookie{Name: cookieName(r), Value: id})
	return r
}
