package page_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin/page"
	"github.com/longshoremq/longshore/deadletters"
)

func pageConfig(hidden bool) page.Config { return page.Config{HidePayloads: hidden} }

var letterLink = regexp.MustCompile(`href="/ui/c/orders/letters/([0-9]+/[0-9]+)\?`)

// letterIn is the first letter of a list.
func letterIn(t *testing.T, body string) string {
	t.Helper()
	m := letterLink.FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("there is no letter in\n%s", body)
	}
	return m[1]
}

// fields are the hidden ones of a plan.
func fields(body string) url.Values {
	form := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(body, -1) {
		form.Add(m[1], m[2])
	}
	return form
}

// TestNoneChosen: who chose nothing has not chosen all.
func TestNoneChosen(t *testing.T) {
	w := begin(t, setup{token: token})
	w.produce(t, "bad one", "bad two")
	w.deadLetters(t, 2)
	b := w.login(t)
	for _, verb := range []string{"replay", "purge"} {
		for what, form := range map[string]url.Values{
			"nothing":       {},
			"no scope":      {"sure": {"yes"}, "number": {"2"}},
			"none ticked":   {"scope": {"ticked"}},
			"no number":     {"scope": {"all"}, "sure": {"yes"}},
			"wrong letter":  {"scope": {"ticked"}, "place": {"x"}},
			"wrong since":   {"scope": {"all"}, "since": {"yesterday"}},
			"other topic":   {"scope": {"all"}, "box": {"orders"}},
			"unknown class": {"scope": {"all"}, "class": {"none"}},
		} {
			a := b.post("/ui/c/orders/"+verb, form)
			if a.status < 400 || a.status >= 500 || !strings.Contains(a.body, `role="alert"`) {
				t.Errorf("%s, %s: %d", verb, what, a.status)
			}
		}
	}
	if a := b.get("/ui/c/orders/letters"); !strings.Contains(a.body, "2 letters in orders-dead") ||
		strings.Contains(a.body, `class="job"`) {
		t.Errorf("something was done:\n%s", a.body)
	}
}

// TestReplay: a plan that changes nothing, then the job; each letter once; those that are ticked, and all.
func TestReplay(t *testing.T) {
	var heal healing
	w := begin(t, setup{token: token, handler: heal.handle})
	for i := range 12 {
		w.produce(t, fmt.Sprintf("bad %d", i))
	}
	w.deadLetters(t, 12)
	heal.healed.Store(true)
	b := w.login(t)
	one := letterIn(t, b.get("/ui/c/orders/letters").body)
	plan := b.post("/ui/c/orders/replay", url.Values{"scope": {"ticked"}, "place": {one}})
	if plan.status != 200 || !strings.Contains(plan.body, "1 letter would be replayed.") ||
		!strings.Contains(plan.body, "1 to orders") {
		t.Fatalf("plan: %d\n%s", plan.status, plan.body)
	}
	if handled := w.consumer.Stats().Handled; handled != 0 {
		t.Fatalf("a plan has replayed %d", handled)
	}
	if a := b.post("/ui/c/orders/replay", fields(plan.body)); a.status != http.StatusSeeOther {
		t.Fatalf("replay: %d\n%s", a.status, a.body)
	}
	eventually(t, "one is handled", func() bool { return w.consumer.Stats().Handled == 1 })
	eventually(t, "the job is done", func() bool { return strings.Contains(b.get("/ui/c/orders/job").body, ": done, 1 of 1") })

	plan = b.post("/ui/c/orders/replay", url.Values{"scope": {"all"}, "rate": {"0"}})
	if !strings.Contains(plan.body, "11 letters would be replayed.") ||
		!strings.Contains(plan.body, "1 letter of those chosen were replayed before") {
		t.Fatalf("plan:\n%s", plan.body)
	}
	b.post("/ui/c/orders/replay", fields(plan.body))
	eventually(t, "all are handled", func() bool { return w.consumer.Stats().Handled == 12 })
	eventually(t, "the job is done", func() bool { return strings.Contains(b.get("/ui/c/orders/job").body, ": done, 11 of 11") })
	if a := b.get("/ui/c/orders/letters?state=replayed"); !strings.Contains(a.body, "12 letters in") {
		t.Errorf("%s", a.body)
	}

	purge := b.post("/ui/c/orders/purge", url.Values{"scope": {"all"}, "state": {"replayed"}})
	if !strings.Contains(purge.body, "12 letters would be deleted for good") {
		t.Fatalf("%s", purge.body)
	}
	wrong := fields(purge.body)
	wrong.Set("number", "11")
	b.post("/ui/c/orders/purge", wrong)
	eventually(t, "the purge is refused", func() bool {
		return strings.Contains(b.get("/ui/c/orders/job").body,
			"nothing was deleted")
	})
	b.post("/ui/c/orders/purge", fields(purge.body))
	eventually(t, "all are gone", func() bool { return strings.Contains(b.get("/ui/c/orders/letters").body, "0 letters in") })
}

// TestSharedLetters: where another consumer has its letters in the same topic, a page keeps to those of its own. To delete all
// of one deleted the other's, too.
func TestSharedLetters(t *testing.T) {
	w := begin(t, setup{token: token, shared: true})
	w.produce(t, "bad one")
	w.deadLetters(t, 1)
	for partition := range 2 {
		if err := w.ProduceTo(partition, broker.Outgoing{Topic: "orders-dead", Value: []byte("bad two"),
			Headers: []broker.Header{{Key: "Longshore-Handler", Value: []byte("other")}}}); err != nil {
			t.Fatal(err)
		}
	}
	b := w.login(t)
	list := b.get("/ui/c/orders/letters")
	if !strings.Contains(list.body, "1 letters of orders in orders-dead, where others have theirs") {
		t.Fatalf("%s", list.body)
	}
	own := letterIn(t, list.body)
	for _, form := range []url.Values{{"scope": {"all"}}, {"scope": {"ticked"}, "place": {own, "0/0", "1/0", "0/1", "1/1"}}} {
		for verb, want := range map[string]string{"replay": "1 letter would be replayed.", "purge": "1 letter would be deleted"} {
			if plan := b.post("/ui/c/orders/"+verb, form); !strings.Contains(plan.body, want) {
				t.Errorf("%s of %v:\n%s", verb, form, plan.body)
			}
		}
	}
	b.post("/ui/c/orders/purge", fields(b.post("/ui/c/orders/purge", url.Values{"scope": {"all"}}).body))
	eventually(t, "its letter is gone", func() bool {
		return strings.Contains(b.get("/ui/c/orders/letters").body, "0 letters of orders")
	})
	l, err := deadletters.New(deadletters.Config{Topic: "orders-dead", Store: w.LogView()})
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	err = l.List(t.Context(), deadletters.Filter{Handler: "other"}, func(*deadletters.Letter) error { left++; return nil })
	if err != nil || left != 2 {
		t.Errorf("%d letters of the other are left, want both: %v", left, err)
	}
}

// TestStopAndGoOn: a replay is stopped, begins no other beside it, and goes on with what is left: each letter once.
func TestStopAndGoOn(t *testing.T) {
	const n = 300
	var heal healing
	g := &gate{after: 10, open: make(chan struct{})} // however long it takes here: it has not ended when it is stopped
	w := begin(t, setup{token: token, handler: heal.handle, gate: g})
	for i := range n {
		w.produce(t, fmt.Sprintf("bad %d", i))
	}
	w.deadLetters(t, n)
	heal.healed.Store(true)
	b := w.login(t)
	plan := b.post("/ui/c/orders/replay", url.Values{"scope": {"all"}, "rate": {"100"}})
	b.post("/ui/c/orders/replay", fields(plan.body))
	eventually(t, "some are replayed", func() bool { return w.consumer.Stats().Handled > 10 })
	if a := b.post("/ui/c/orders/replay", fields(plan.body)); a.status != http.StatusConflict {
		t.Errorf("a second job: %d", a.status)
	}
	b.post("/ui/c/orders/job/stop", nil)
	close(g.open)
	eventually(t, "it stops", func() bool { return strings.Contains(b.get("/ui/c/orders/job").body, ": stopped,") })
	if got := w.consumer.Stats().Handled; got >= n {
		t.Fatalf("%d were replayed when it was stopped", got)
	}
	if a := b.post("/ui/c/orders/job/continue", nil); a.status != http.StatusSeeOther {
		t.Fatalf("go on: %d\n%s", a.status, a.body)
	}
	eventually(t, "all are replayed", func() bool { return w.consumer.Stats().Handled == n })
	eventually(t, "the job says so", func() bool {
		return strings.Contains(b.get("/ui/c/orders/job").body, fmt.Sprintf(": done, %d of %d", n, n))
	})
	if a := b.post("/ui/c/orders/job/continue", nil); a.status != http.StatusConflict {
		t.Errorf("went on with nothing: %d", a.status)
	}
	if in := w.consumer.Stats().Received; in != 2*n {
		t.Errorf("%d messages were received, want each twice: %d", in, 2*n)
	}
}

// TestEdit: the edited copy is handled, the letter stays; what a form does to line ends is undone.
func TestEdit(t *testing.T) {
	var got payloads
	w := begin(t, setup{token: token, handler: got.handle})
	w.produce(t, "bad {\n\t\"a\": 1}\n")
	w.deadLetters(t, 1)
	b := w.login(t)
	place := letterIn(t, b.get("/ui/c/orders/letters").body)
	path := "/ui/c/orders/letters/" + place
	for what, form := range map[string]url.Values{
		"nothing changed":    {"value": {"bad {\r\n\t\"a\": 1}\r\n"}},
		"a header of ours":   {"value": {"good"}, "set": {"Longshore-Attempts=1"}},
		"no header":          {"value": {"good"}, "set": {"tenant"}},
		"a reserved place":   {"value": {"good"}, "to": {"$JS.API.X"}},
		"its own dead topic": {"value": {"good"}, "remove": {"Nats-Msg-Id"}},
		"a slip in a name":   {"value": {"good"}, "remove": {"trace"}},
	} {
		if a := b.post(path, form); a.status != http.StatusBadRequest || !strings.Contains(a.body, `role="alert"`) {
			t.Errorf("%s: %d", what, a.status)
		}
	}
	if a := b.post(path, url.Values{"value": {"good\r\nlines"}, "set": {"tenant=eu\r\n"}}); a.status != http.StatusSeeOther {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	eventually(t, "the copy is handled", func() bool { return got.has("good\nlines tenant=eu") })
	eventually(t, "the letter says so, and from where", func() bool {
		body := b.get(path).body
		return strings.Contains(body, "replayed, edited") && strings.Contains(body, ", by the page, from 127.0.0.1:")
	})
	if a := b.post(path, url.Values{"value": {"good again"}}); a.status != http.StatusBadRequest ||
		!strings.Contains(a.body, "replayed before") {
		t.Errorf("edited twice: %d", a.status)
	}
}

// TestPagesOfLetters: the newest first, 50 a page, each once.
func TestPagesOfLetters(t *testing.T) {
	const n = 120
	w := begin(t, setup{token: token})
	for i := range n {
		w.produce(t, fmt.Sprintf("bad %d", i))
	}
	w.deadLetters(t, n)
	b := w.browser(t)
	seen, path := map[string]bool{}, "/ui/c/orders/letters"
	older := regexp.MustCompile(`<a href="([^"]+)">Older ones</a>`)
	for pages := 0; path != "" && pages < 5; pages++ {
		a := b.get(path)
		if !strings.Contains(a.body, "120 letters in") {
			t.Fatalf("%s: %d", path, a.status)
		}
		for _, m := range letterLink.FindAllStringSubmatch(a.body, -1) {
			if seen[m[1]] {
				t.Errorf("%s is there twice", m[1])
			}
			seen[m[1]] = true
		}
		path = ""
		if m := older.FindStringSubmatch(a.body); m != nil {
			path = strings.ReplaceAll(m[1], "&amp;", "&")
		}
	}
	if len(seen) != n {
		t.Errorf("%d letters were listed, want %d", len(seen), n)
	}
	for _, wrong := range []string{"after=x", "after=1:2", "state=gone", "since=soon", "class=none"} {
		if a := b.get("/ui/c/orders/letters?" + wrong); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d", wrong, a.status)
		}
	}
}

var errBad = errors.New("cannot be handled")

// handle fails until it is healed.
func (h *healing) handle(context.Context, *consumer.Message) error {
	if h.healed.Load() {
		return nil
	}
	return consumer.Permanent(errBad)
}

// TestPurgeOfOthers: while somebody looks at the plan of a purge one letter is replayed and another one comes, so that there are
// as many as before. The new one, which nobody has seen, stays.
func TestPurgeOfOthers(t *testing.T) {
	var heal healing
	w := begin(t, setup{token: token, handler: heal.handle})
	w.produce(t, "bad one", "bad two")
	w.deadLetters(t, 2)
	b := w.login(t)
	old := letterIn(t, b.get("/ui/c/orders/letters").body)
	purge := b.post("/ui/c/orders/purge", url.Values{"scope": {"all"}, "state": {"waiting"}})
	if !strings.Contains(purge.body, "2 letters would be deleted for good") {
		t.Fatalf("%s", purge.body)
	}

	heal.healed.Store(true)
	b.post("/ui/c/orders/replay", fields(b.post("/ui/c/orders/replay", url.Values{"scope": {"ticked"}, "place": {old}}).body))
	eventually(t, "one is replayed", func() bool { return strings.Contains(b.get("/ui/c/orders/job").body, ": done, 1 of 1") })
	eventually(t, "it is handled", func() bool { return w.consumer.Stats().Handled == 1 }) // else it fails again, and is a fourth
	heal.healed.Store(false)
	w.produce(t, "bad three")
	w.deadLetters(t, 3)

	if a := b.post("/ui/c/orders/purge", fields(purge.body)); a.status != http.StatusSeeOther {
		t.Fatalf("purge: %d\n%s", a.status, a.body)
	}
	eventually(t, "the purge ends", func() bool { return !strings.Contains(b.get("/ui/c/orders/job").body, "under way") })
	if job := b.get("/ui/c/orders/job").body; !strings.Contains(job, "nothing was deleted") {
		t.Errorf("%s", job)
	}
	if a := b.get("/ui/c/orders/letters"); !strings.Contains(a.body, "3 letters in") {
		t.Errorf("%s", a.body)
	}
}

// TestErrorsOfHiddenPayloads: where payloads are hidden, the text of a letter's error and of a failed run's, which may have of
// one, is for those who have logged in.
func TestErrorsOfHiddenPayloads(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		w := begin(t, setup{token: token, page: pageConfig(hidden), handler: (&healing{}).handle})
		w.produce(t, "bad")
		w.deadLetters(t, 1)
		member, stranger := w.login(t), w.browser(t)
		list := "/ui/c/orders/letters"
		for _, path := range []string{list, list + "/" + letterIn(t, member.get(list).body), "/ui/c/orders", "/ui/events"} {
			if a := member.get(path); !strings.Contains(a.body, errBad.Error()) {
				t.Errorf("hidden %t, %s: it is not there:\n%s", hidden, path, a.body)
			}
			if a := stranger.get(path); strings.Contains(a.body, errBad.Error()) == hidden || a.status != 200 {
				t.Errorf("hidden %t, %s, of a stranger: %d\n%s", hidden, path, a.status, a.body)
			}
		}
	}
}
