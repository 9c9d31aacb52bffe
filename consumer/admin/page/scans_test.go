package page_test

import (
	"context"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/admin/page"
	"github.com/longshoremq/longshore/deadletters"
)

// TestPlansThatFail: a plan that cannot be made is answered with the list of letters, also where as many fail at once as may read
// letters at once.
func TestPlansThatFail(t *testing.T) {
	const atOnce = 4 // may read dead letters
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		all.Add(atOnce)
		h := letterPage(t, func(l *page.Letters) {
			l.Allow = func(context.Context) (func(string) bool, error) {
				all.Done()
				all.Wait()
				return nil, errors.New("no contact")
			}
		}, "one", "two")
		cookie := loginAt(t, h)
		var asking sync.WaitGroup
		for range atOnce {
			asking.Go(func() {
				a := postTo(h, "/ui/c/orders/replay", url.Values{"scope": {"all"}}, cookie)
				if body := a.Body.String(); !strings.Contains(body, "no contact") || !strings.Contains(body, "2 letters in orders-dead") {
					t.Errorf("%d\n%s", a.Code, body)
				}
			})
		}
		asking.Wait()
	})
}

// letterPage is a page of a consumer with dead letters of these payloads, as odd says that its box is.
func letterPage(t *testing.T, odd func(*page.Letters), letters ...string) http.Handler {
	t.Helper()
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1, "orders-dead": 1}})
	for _, l := range letters {
		if err := b.Produce(broker.Outgoing{Topic: "orders-dead", Value: []byte(l)}); err != nil {
			t.Fatal(err)
		}
	}
	box := page.Letters{Config: deadletters.Config{Topic: "orders-dead", Store: b.LogView(), Publisher: b.Publisher()}}
	odd(&box)
	ui := page.New(page.Config{})
	ui.Watch("orders", page.Sources{Letters: []page.Letters{box}})
	c, err := consumer.New(consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"orders"}}),
		Handler: func(context.Context, *consumer.Message) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	return ui.Handler(admin.PageSetup{Token: token, Targets: map[string]admin.Target{"orders": c}})
}

// loginAt is the cookie of who has logged in.
func loginAt(t *testing.T, h http.Handler) string {
	t.Helper()
	a := postTo(h, "/ui/login", url.Values{"token": {token}}, "")
	cookie, _, ok := strings.Cut(a.Header().Get("Set-Cookie"), ";")
	if !ok {
		t.Fatalf("login: %d\n%s", a.Code, a.Body)
	}
	return cookie
}

func postTo(h http.Handler, path string, form url.Values, cookie string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Cookie", cookie)
	a := httptest.NewRecorder()
	h.ServeHTTP(a, r)
	return a
}

func getAt(h http.Handler, path, cookie string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Cookie", cookie)
	a := httptest.NewRecorder()
	h.ServeHTTP(a, r)
	return a
}

// TestOlderOnesOfAChoice: the next page of a list is of the same choice: else the buttons below it, which replay or delete all of
// them, mean others.
func TestOlderOnesOfAChoice(t *testing.T) {
	h := letterPage(t, func(*page.Letters) {}, slices.Repeat([]string{"x"}, 60)...)
	cookie := loginAt(t, h)
	first := getAt(h, "/ui/c/orders/letters?state=waiting&since=2h30m", cookie).Body.String()
	older := regexp.MustCompile(`<a href="([^"]+)">Older ones</a>`).FindStringSubmatch(first)
	if older == nil {
		t.Fatalf("%s", first)
	}
	second := getAt(h, html.UnescapeString(older[1]), cookie).Body.String()
	one, next := fields(first), fields(second)
	if next.Get("box") != "orders-dead" || next.Get("state") != "waiting" || next.Get("since") == "" ||
		!reflect.DeepEqual(next, one) || !strings.Contains(second, "here are 10, the newest first") {
		t.Errorf("%s\nchosen %v, then %v", older[1], one, next)
	}
}

// TestStrangersKeepNobodyOut: who has logged in reads dead letters, and plans what becomes of them, while strangers have asked
// for more lists than may be read at once.
func TestStrangersKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan struct{})
		h := letterPage(t, func(l *page.Letters) { l.Store = slowForStrangers{l.Store, left} }, "one", "two")
		cookie := loginAt(t, h)
		ctx := context.WithValue(t.Context(), stranger{}, true)
		var strangers sync.WaitGroup
		for range 20 {
			strangers.Go(func() {
				r := httptest.NewRequest(http.MethodGet, "/ui/c/orders/letters", nil).WithContext(ctx)
				h.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		synctest.Wait()
		for what, a := range map[string]*httptest.ResponseRecorder{
			"2 letters in orders-dead":   getAt(h, "/ui/c/orders/letters", cookie),
			"one":                        getAt(h, "/ui/c/orders/letters/0/0", cookie),
			"2 letters would be deleted": postTo(h, "/ui/c/orders/purge", url.Values{"scope": {"all"}}, cookie),
		} {
			if body := a.Body.String(); a.Code != http.StatusOK || !strings.Contains(body, what) {
				t.Errorf("%d, want %q in\n%s", a.Code, what, body)
			}
		}
		close(left)
		strangers.Wait()
	})
}

type stranger struct{}

// slowForStrangers answers those who have the stranger's mark only when they have left.
type slowForStrangers struct {
	deadletters.Store
	left <-chan struct{}
}

func (s slowForStrangers) Scan(ctx context.Context, b broker.Scan, each func(*broker.Message) error) (broker.Scanned, error) {
	if ctx.Value(stranger{}) != nil {
		<-s.left
	}
	return s.Store.Scan(ctx, b, each)
}

// TestStrangersScansHavePauses: strangers that ask for lists of dead letters one after the other have the broker read for a part
// of the time only, and who has logged in waits for nobody.
func TestStrangersScansHavePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reading, read := 0, time.Duration(0)
		var mu sync.Mutex
		h := letterPage(t, func(l *page.Letters) {
			l.Store = timed{l.Store, func(took time.Duration) { mu.Lock(); reading++; read += took; mu.Unlock() }}
		}, "one", "two")
		ask := func(cookie string) int { return getAt(h, "/ui/c/orders/letters", cookie).Code }
		begun := time.Now()
		var strangers sync.WaitGroup
		for range 4 {
			strangers.Go(func() {
				for range 5 {
					if code := ask(""); code != http.StatusOK {
						t.Errorf("a stranger: %d", code)
					}
				}
			})
		}
		strangers.Wait()
		if took := time.Since(begun); 3*read > 4*took || read == 0 { // there are four places
			t.Errorf("%d scans read for %v together, in %v", reading, read, took)
		}
		cookie := loginAt(t, h)
		begun, read = time.Now(), 0
		for range 5 {
			if code := ask(cookie); code != http.StatusOK {
				t.Errorf("a member: %d", code)
			}
		}
		if took := time.Since(begun); took != read || read == 0 {
			t.Errorf("a member waits for %v of %v", took-read, took)
		}
		time.Sleep(time.Hour) // the pauses end
	})
}

// timed takes a second for each scan, and tells of it.
type timed struct {
	deadletters.Store
	tell func(time.Duration)
}

func (s timed) Scan(ctx context.Context, b broker.Scan, each func(*broker.Message) error) (broker.Scanned, error) {
	time.Sleep(time.Second)
	defer s.tell(time.Second)
	return s.Store.Scan(ctx, b, each)
}

// TestOneSlowReaderIsNotRefused: where the store is slow by itself, somebody who asks for page after page, alone, gets them all.
func TestOneSlowReaderIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := letterPage(t, func(l *page.Letters) { l.Store = slow{l.Store} }, "one")
		for n := range 12 {
			if code := getAt(h, "/ui/c/orders/letters", "").Code; code != http.StatusOK {
				t.Errorf("page %d: %d", n, code)
			}
		}
	})
}

// slow takes six seconds for a scan.
type slow struct{ deadletters.Store }

func (s slow) Scan(ctx context.Context, b broker.Scan, each func(*broker.Message) error) (broker.Scanned, error) {
	time.Sleep(6 * time.Second)
	return s.Store.Scan(ctx, b, each)
}
