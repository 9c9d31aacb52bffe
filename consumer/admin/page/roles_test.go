package page_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/consumer/admin/page"
)

// changes are all requests that change something.
var changes = map[string]url.Values{
	"/ui/c/orders/pause":        {},
	"/ui/c/orders/resume":       {},
	"/ui/c/orders/limits":       {"min": {"2"}, "max": {"3"}},
	"/ui/c/orders/limits/calls": {"per_second": {"7"}},
	"/ui/c/orders/replay":       {"scope": {"all"}, "sure": {"yes"}, "number": {"1"}},
	"/ui/c/orders/purge":        {"scope": {"all"}, "sure": {"yes"}, "number": {"1"}},
	"/ui/c/orders/letters/0/0":  {"value": {"good"}},
	"/ui/c/orders/job/stop":     {},
	"/ui/c/orders/job/continue": {},
}

// TestStrangersChangeNothing: without a login each change leads to the login, and nothing was done; neither is it with a cookie
// that was made up.
func TestStrangersChangeNothing(t *testing.T) {
	w := begin(t, setup{token: token})
	w.produce(t, "bad one")
	w.deadLetters(t, 1)
	named := "longshore_session_" + w.url[strings.LastIndexByte(w.url, ':')+1:] + "="
	for _, made := range []string{"", "longshore_session=x", named + "x", named + token} {
		b := w.browser(t)
		for path, form := range changes {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+path, strings.NewReader(form.Encode()))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Cookie", made)
			if a := b.send(r); a.status != http.StatusSeeOther || a.header.Get("Location") != "/ui/login" {
				t.Errorf("POST %s, cookie %q: %d %q", path, made, a.status, a.header.Get("Location"))
			}
		}
	}
	s := w.consumer.Stats()
	if s.Paused || s.Pool.Min != 1 || s.Pool.Max != 16 || w.limit.Settings()["per_second"] != 5 {
		t.Errorf("%+v %v", s, w.limit.Settings())
	}
	if a := w.browser(t).get("/ui/c/orders"); strings.Contains(a.body, "<form") ||
		!strings.Contains(a.body, "calls (rate_limit, shared: 25.0 % of it here): burst 1 per_second 5") {
		t.Errorf("a stranger has forms, or does not see the limits:\n%s", a.body)
	}
	if job := w.browser(t).get("/ui/c/orders/job"); strings.Contains(job.body, "replay") {
		t.Errorf("a job: %s", job.body)
	}
}

// TestOtherSites: a form of another site is refused, though the browser has logged in.
func TestOtherSites(t *testing.T) {
	w := begin(t, setup{token: token})
	b := w.login(t)
	for name, header := range map[string][2]string{"fetch metadata": {"Sec-Fetch-Site", "cross-site"},
		"origin": {"Origin", "http://evil.example"}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/ui/c/orders/pause", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header[0], header[1])
		if a := b.send(r); a.status != http.StatusForbidden {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	if w.consumer.Stats().Paused {
		t.Error("it was paused")
	}
	if a := b.get("/ui/c/orders/pause"); a.status != http.StatusMethodNotAllowed || w.consumer.Stats().Paused {
		t.Errorf("GET pause: %d", a.status)
	}
}

// TestControls: who has logged in pauses, resumes, and sets limits; each is an event of the log and of the page.
func TestControls(t *testing.T) {
	w := begin(t, setup{token: token})
	b := w.login(t)
	if a := b.post("/ui/c/orders/pause", nil); a.status != http.StatusSeeOther || !w.consumer.Stats().Paused {
		t.Errorf("pause: %d, %v", a.status, w.consumer.Stats().Paused)
	}
	if a := b.get("/ui/c/orders"); !strings.Contains(a.body, ">Resume</button>") || !strings.Contains(a.body, "It is paused") {
		t.Error("the page does not say that it is paused")
	}
	if a := b.post("/ui/c/orders/resume", nil); a.status != http.StatusSeeOther || w.consumer.Stats().Paused {
		t.Errorf("resume: %d", a.status)
	}
	if a := b.post("/ui/c/orders/limits", changes["/ui/c/orders/limits"]); a.status != http.StatusSeeOther ||
		w.consumer.Stats().Pool.Max != 3 {
		t.Errorf("limits: %d", a.status)
	}
	if a := b.post("/ui/c/orders/limits/calls", changes["/ui/c/orders/limits/calls"]); a.status != http.StatusSeeOther ||
		w.limit.Settings()["per_second"] != 7 {
		t.Errorf("limit: %d", a.status)
	}
	for path, form := range map[string]url.Values{
		"/ui/c/orders/limits": {"min": {"9"}, "max": {"x"}}, "/ui/c/orders/limits/calls": {"per_second": {"-1"}},
		"/ui/c/orders/limits/none": {"per_second": {"1"}},
	} {
		if a := b.post(path, form); a.status < 400 || a.status >= 500 || !strings.Contains(a.body, `role="alert"`) {
			t.Errorf("%s %v: %d", path, form, a.status)
		}
	}
	events := b.get("/ui/events").body
	for _, path := range []string{"pause", "resume", "limits", "limits/calls"} {
		if !strings.Contains(w.log.String(), `"path":"/ui/c/orders/`+path+`"`) || !strings.Contains(events, "path=/ui/c/orders/"+path) {
			t.Errorf("nothing tells of %s", path)
		}
	}
	if strings.Contains(w.log.String(), token) {
		t.Error("the token is in the log")
	}
	if a := b.post("/ui/logout", nil); a.status != http.StatusSeeOther {
		t.Errorf("logout: %d", a.status)
	}
	if a := b.post("/ui/c/orders/pause", nil); a.header.Get("Location") != "/ui/login" || w.consumer.Stats().Paused {
		t.Error("paused after the logout")
	}
}

// TestLogin: a wrong token, none at all, too many tries; what the cookie allows.
func TestLogin(t *testing.T) {
	w := begin(t, setup{token: token})
	a := w.browser(t).post("/ui/login", url.Values{"token": {token}})
	c := a.header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/ui/", "Max-Age=43200"} {
		if !strings.Contains(c, want) {
			t.Errorf("the cookie %q has no %s", c, want)
		}
	}
	if strings.Contains(c, "Secure") || strings.Contains(c, token) {
		t.Errorf("the cookie is %q", c)
	}
	b := w.browser(t)
	if a := b.post("/ui/login", url.Values{"token": {"wrong"}}); a.status != http.StatusUnauthorized ||
		a.header.Get("Set-Cookie") != "" || !strings.Contains(a.body, "not the token") {
		t.Errorf("%d %q", a.status, a.header.Get("Set-Cookie"))
	}
	for limited := 0; limited == 0; { // tries that take long are not in a row, and tell nothing
		begun := time.Now()
		for range 20 {
			if b.post("/ui/login", url.Values{"token": {"wrong"}}).status == http.StatusTooManyRequests {
				limited++
			}
		}
		if limited == 0 && time.Since(begun) < 2*time.Second {
			t.Fatal("20 tries in a row, and none was refused")
		}
	}
	none := begin(t, setup{})
	if a := none.browser(t).post("/ui/login", url.Values{"token": {""}}); a.status != http.StatusUnauthorized ||
		!strings.Contains(a.body, "No token is configured") {
		t.Errorf("without a token: %d", a.status)
	}
}

// TestStrangersLetMembersIn: however many wrong tokens are tried, the right one passes.
func TestStrangersLetMembersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := letterPage(t, func(*page.Letters) {})
		limited := 0
		for range 20 {
			if postTo(h, "/ui/login", url.Values{"token": {"wrong"}}, "").Code == http.StatusTooManyRequests {
				limited++
			}
		}
		if limited == 0 {
			t.Error("20 wrong tokens at once, and each was answered")
		}
		for range 20 {
			if a := postTo(h, "/ui/login", url.Values{"token": {token}}, ""); a.Code != http.StatusSeeOther {
				t.Fatalf("the right token: %d", a.Code)
			}
		}
	})
}

// TestTwoOfOneHost: a browser that has logged in at two processes of one host, whose cookies are the same for all ports, is in at
// both; a logout at one is none at the other.
func TestTwoOfOneHost(t *testing.T) {
	one, two := begin(t, setup{token: token}), begin(t, setup{token: token})
	b := one.login(t)
	in := func(at *world) bool {
		b.base = at.url
		return strings.Contains(b.get("/ui/c/orders").body, "<form")
	}
	b.base = two.url
	b.post("/ui/login", url.Values{"token": {token}})
	if !in(two) || !in(one) {
		t.Error("the login at the second process ended that at the first")
	}
	b.base = two.url
	b.post("/ui/logout", nil)
	if in(two) || !in(one) {
		t.Error("the logout at the second process is not of that one alone")
	}
}

// TestPayloads: keys, headers and payloads are for those who have logged in, or for nobody.
func TestPayloads(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		w := begin(t, setup{token: token, page: pageConfig(hidden)})
		w.produce(t, "bad one with a secret in it that is long enough to be seen nowhere else: "+strings.Repeat("x", 200)+"CANARY")
		w.deadLetters(t, 1)
		for _, member := range []bool{false, true} {
			b := w.browser(t)
			if member {
				b = w.login(t)
			}
			list := b.get("/ui/c/orders/letters")
			place := letterIn(t, list.body)
			one := b.get("/ui/c/orders/letters/" + place)
			if list.status != 200 || one.status != 200 {
				t.Fatalf("%d %d", list.status, one.status)
			}
			want := member && !hidden
			if got := strings.Contains(one.body, "CANARY"); got != want {
				t.Errorf("hidden %v, member %v: the payload is shown: %v", hidden, member, got)
			}
			if got := strings.Contains(one.body+list.body, "key of bad"); got != want {
				t.Errorf("hidden %v, member %v: the key is shown: %v", hidden, member, got)
			}
			if got := strings.Contains(one.body, "Longshore-"); got != want {
				t.Errorf("hidden %v, member %v: headers are shown: %v", hidden, member, got)
			}
			if !want && member {
				if a := b.post("/ui/c/orders/letters/"+place, url.Values{"value": {"good"}}); a.status != http.StatusForbidden {
					t.Errorf("edited though payloads are hidden: %d", a.status)
				}
			}
			// who may not see keys may not guess them either
			if guess := b.get("/ui/c/orders/letters?key=wrong"); strings.Contains(guess.body, "0 letters") != want {
				t.Errorf("hidden %v, member %v: letters are chosen by key: %v", hidden, member, !want)
			}
		}
	}
}
