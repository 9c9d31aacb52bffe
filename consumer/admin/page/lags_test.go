package page_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/admin/page"
)

// TestLagsThatPanic: a program's own function that panicked once is asked again.
func TestLagsThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1}})
		asked := 0
		ui := page.New(page.Config{})
		ui.Watch("orders", page.Sources{Lags: func(context.Context) ([]page.Lag, error) {
			if asked++; asked == 1 {
				panic("no such group")
			}
			return []page.Lag{{Of: "the one partition"}}, nil
		}})
		c, err := consumer.New(consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"orders"}}),
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		h := ui.Handler(admin.PageSetup{Targets: map[string]admin.Target{"orders": c}})
		look := func() string {
			a := httptest.NewRecorder()
			defer func() { _ = recover() }() // the admin server's guard
			h.ServeHTTP(a, httptest.NewRequest(http.MethodGet, "/ui/c/orders", nil))
			return a.Body.String()
		}
		look()
		time.Sleep(time.Minute)
		if body := look(); !strings.Contains(body, "the one partition") {
			t.Errorf("asked %d times:\n%s", asked, body)
		}
	})
}
