package page_test

import (
	"context"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer/admin/page"
)

// A lost publisher does not return.
type lost struct {
	broker.Publisher
	by func()
}

func (l lost) Publish(context.Context, []broker.Outgoing) error { l.by(); return nil }

// TestJobThatPanics: a publisher of somebody's own that panics fails the job, and takes no process with it. One that ends its
// goroutine does not leave the job under way for ever.
func TestJobThatPanics(t *testing.T) {
	for want, by := range map[string]func(){
		"it panicked: no such shard, at ": func() { panic("no such shard") },
		"it called runtime.Goexit":        runtime.Goexit,
	} {
		synctest.Test(t, func(t *testing.T) {
			h := letterPage(t, func(l *page.Letters) { l.Config.Publisher = lost{by: by} }, "x")
			cookie := loginAt(t, h)
			form := url.Values{"scope": {"all"}, "to": {"orders"}, "sure": {"yes"}, "number": {"1"}}
			if a := postTo(h, "/ui/c/orders/replay", form, cookie); a.Code != http.StatusSeeOther {
				t.Fatalf("%d %s", a.Code, a.Body)
			}
			synctest.Wait()
			body := getAt(h, "/ui/c/orders/job", cookie).Body.String()
			if !strings.Contains(body, want) || strings.Contains(body, "under way") {
				t.Errorf("want %q:\n%s", want, body)
			}
		})
	}
}

// TestEditOfNothing: an edit whose copy was not published has failed. The job said that it was done.
func TestEditOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := letterPage(t, func(l *page.Letters) {
			l.Allow = func(context.Context) (func(string) bool, error) { return func(string) bool { return false }, nil }
		}, "x")
		cookie := loginAt(t, h)
		a := postTo(h, "/ui/c/orders/letters/0/0", url.Values{"value": {"y"}}, cookie) // it does not say where it came from
		if a.Code != http.StatusSeeOther {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		synctest.Wait()
		job := getAt(h, "/ui/c/orders/job", cookie).Body.String()
		if !strings.Contains(job, "</b> of orders-dead: failed, ") || !strings.Contains(job, "it does not say where it came from") {
			t.Errorf("%s", job)
		}
	})
}
