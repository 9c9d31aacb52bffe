package page_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer/admin/page"
	"github.com/longshoremq/longshore/deadletters"
)

// TestPlanWithRefused: of two letters one may not be replayed, and a third one comes while somebody looks at the plan. What is
// replayed is as much as the plan said: the new letter is not in the place of the one that was refused.
func TestPlanWithRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p broker.Publisher
		h := letterPage(t, func(l *page.Letters) { p = l.Publisher }, "one")
		bury := func(value, replays string) {
			o := broker.Outgoing{Topic: "orders-dead", Value: []byte(value),
				Headers: []broker.Header{{Key: broker.HeaderReplays, Value: []byte(replays)}}}
			if err := p.Publish(t.Context(), []broker.Outgoing{o}); err != nil {
				t.Fatal(err)
			}
		}
		bury("too often", "9")
		cookie := loginAt(t, h)
		order := url.Values{"scope": {"all"}, "to": {"orders"}, "rate": {"0"}}
		plan := postTo(h, "/ui/c/orders/replay", order, cookie).Body.String()
		for _, want := range []string{"1 letter would be replayed.", "1 letter would be refused, and stay.", ">Replay 1<"} {
			if !strings.Contains(plan, want) {
				t.Errorf("the plan does not say %q:\n%s", want, plan)
			}
		}
		bury("new", "0")
		if a := postTo(h, "/ui/c/orders/replay", fields(plan), cookie); a.Code != http.StatusSeeOther {
			t.Fatalf("%d\n%s", a.Code, a.Body)
		}
		synctest.Wait()
		job := getAt(h, "/ui/c/orders/job", cookie).Body.String()
		if !strings.Contains(job, ": done, ") || !strings.Contains(job, "<li>1 letter replayed</li>") {
			t.Errorf("%s", job)
		}
		if list := getAt(h, "/ui/c/orders/letters?state=waiting", cookie).Body.String(); !strings.Contains(list, "2 letters in") {
			t.Errorf("%s", list)
		}
	})
}

// TestHiddenKeyIsNotGuessed: where payloads and keys are hidden from all, a plan of the letters with a key does not tell whether
// there is one with it.
func TestHiddenKeyIsNotGuessed(t *testing.T) {
	w := begin(t, setup{token: token, page: page.Config{HidePayloads: true}})
	if err := w.Produce(broker.Outgoing{Topic: "orders", Key: []byte("customer-7"), Value: []byte("bad")}); err != nil {
		t.Fatal(err)
	}
	w.deadLetters(t, 1)
	b := w.login(t)
	for _, verb := range []string{"replay", "purge"} {
		right := b.post("/ui/c/orders/"+verb, url.Values{"scope": {"all"}, "key": {"customer-7"}})
		wrong := b.post("/ui/c/orders/"+verb, url.Values{"scope": {"all"}, "key": {"customer-8"}})
		if right.status != http.StatusBadRequest || wrong.status != right.status {
			t.Errorf("%s: %d for the key of the letter, and %d for another:\n%s", verb, right.status, wrong.status, right.body)
		}
	}
}

// endless has more letters than can be read in time.
type endless struct{ deadletters.Store }

func (e endless) Scan(ctx context.Context, _ broker.Scan, _ func(*broker.Message) error) (broker.Scanned, error) {
	<-ctx.Done()
	return broker.Scanned{}, ctx.Err()
}

// TestPlanThatTakesTooLong: it is answered before the server cuts the answer (its WriteTimeout, 30 s), and says what to do. The
// list of letters, which takes as long once more, was read for the answer.
func TestPlanThatTakesTooLong(t *testing.T) {
	for _, verb := range []string{"replay", "purge"} {
		synctest.Test(t, func(t *testing.T) {
			h := letterPage(t, func(l *page.Letters) { l.Store = endless{l.Store} })
			cookie, begin := loginAt(t, h), time.Now()
			a := postTo(h, "/ui/c/orders/"+verb, url.Values{"scope": {"all"}, "to": {"orders"}}, cookie)
			if took := time.Since(begin); took >= 30*time.Second || a.Code != http.StatusBadGateway ||
				!strings.Contains(a.Body.String(), "longshore dlq takes its time") {
				t.Errorf("%s: %d after %v\n%s", verb, a.Code, took, a.Body)
			}
		})
	}
}
