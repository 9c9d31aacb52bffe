package page_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/consumer/admin/page"
)

// TestCookieBehindProxies: each proxy of several adds how it was asked; the first one is the browser's.
func TestCookieBehindProxies(t *testing.T) {
	h := letterPage(t, func(*page.Letters) {})
	for proto, secure := range map[string]bool{
		"": false, "https": true, "https,http": true, "HTTPS , http": true, "http, https": false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/ui/login", strings.NewReader(url.Values{"token": {token}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-Proto", proto)
		a := httptest.NewRecorder()
		h.ServeHTTP(a, r)
		if c := a.Header().Get("Set-Cookie"); strings.Contains(c, "; Secure") != secure || c == "" {
			t.Errorf("X-Forwarded-Proto: %q: %d %q", proto, a.Code, c)
		}
	}
}
