package page_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"golang.org/x/net/html"
)

// hostile are texts that want out of where they stand.
var hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>` + "\u202e" + `txt.exe` + "\x00\x1b[31m" +
	` </textarea></title>{{.}} javascript:alert(3)`

// TestHostileTexts: in the name of a consumer, a key, a header, an error and a payload: none becomes an element or an
// attribute, and none turns the direction of what follows.
func TestHostileTexts(t *testing.T) {
	name := `or<b>"'ders/?x=1%41`
	big := strings.Repeat("<i>x</i>", 1<<17) // 1 MB
	w := begin(t, setup{name: name, token: token, handler: func(_ context.Context, m *consumer.Message) error {
		return consumer.Permanent(errors.New(hostile + string(m.Value)))
	}})
	text := strings.ReplaceAll(hostile, "\x00", "")
	for _, value := range []string{text, hostile, big} {
		headers := []broker.Header{{Key: "x-<b>", Value: []byte(hostile)}}
		if err := w.Produce(broker.Outgoing{Topic: "orders", Key: []byte(hostile), Value: []byte(value),
			Headers: headers}); err != nil {
			t.Fatal(err)
		}
	}
	w.deadLetters(t, 3)
	b := w.login(t)
	at := "/ui/c/" + url.PathEscape(name)
	list := b.get(at + "/letters")
	pages := map[string]answer{
		"overview": b.get("/ui/"), "events": b.get("/ui/events"), "detail": b.get(at), "live": b.get(at + "/live"), "letters": list,
		"plan": b.post(at+"/replay", url.Values{"scope": {"all"}, "to": {hostile}, "since": {hostile}, "class": {hostile}}),
		"chosen": b.get(at + "/letters?" + url.Values{"class": {hostile}, "origin": {hostile}, "key": {hostile},
			"after": {hostile}}.Encode()),
		"no such":   b.get("/ui/c/" + url.PathEscape(hostile)),
		"no letter": b.get(at + "/letters/" + url.PathEscape(`"><b>`)),
	}
	links := 0
	for _, a := range attributes(t, list.body, "href") {
		if strings.Contains(a, "/letters/") {
			links++
			pages["letter "+a] = b.get(a)
		}
	}
	if links != 3 {
		t.Errorf("%d letters are linked", links)
	}
	for name, a := range pages {
		if a.status == http.StatusInternalServerError {
			t.Errorf("%s: %d", name, a.status)
		}
		if len(a.body) > 2<<20 {
			t.Errorf("%s has %d bytes", name, len(a.body))
		}
		if name == "plan" || name == "chosen" { // these give a form's own fields back
			a.body = regexp.MustCompile(`(?s) value="[^"]*"`).ReplaceAllString(a.body, "")
		}
		innocent(t, name, a.body)
	}
	for _, name := range []string{"overview", "detail", "letters", "events"} {
		if pages[name].status != http.StatusOK {
			t.Errorf("%s: %d", name, pages[name].status)
		}
	}
}

// innocent: nothing of the hostile texts is markup.
func innocent(t *testing.T, page, body string) {
	t.Helper()
	if strings.ContainsAny(body, "\u202e\x1b") {
		t.Errorf("%s has a control character", page)
	}
	z := html.NewTokenizer(strings.NewReader(body))
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			return
		}
		token := z.Token()
		if kind != html.StartTagToken && kind != html.SelfClosingTagToken {
			continue
		}
		if token.Data == "i" || token.Data == "img" || token.Data == "b" && len(token.Attr) == 0 && strings.Contains(body, "<b>\"'") {
			t.Errorf("%s has an element <%s>", page, token.Data)
		}
		for _, a := range token.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" ||
				strings.HasPrefix(strings.TrimSpace(strings.ToLower(a.Val)), "javascript:") {
				t.Errorf("%s: <%s %s=%q>", page, token.Data, a.Key, a.Val)
			}
			if token.Data == "script" && a.Key == "src" && !strings.HasPrefix(a.Val, "/ui/static/") {
				t.Errorf("%s loads %q", page, a.Val)
			}
		}
		if token.Data == "script" {
			if z.Next() == html.TextToken {
				t.Errorf("%s has a script within: %q", page, z.Token().Data)
			}
		}
	}
}

// attributes are the values of an attribute in a page.
func attributes(t *testing.T, body, key string) (all []string) {
	t.Helper()
	z := html.NewTokenizer(strings.NewReader(body))
	for z.Next() != html.ErrorToken {
		for _, a := range z.Token().Attr {
			if a.Key == key {
				all = append(all, a.Val)
			}
		}
	}
	return all
}

// TestFormsLeadSomewhere: the action of each form and the target of each link of all pages is a route.
func TestFormsLeadSomewhere(t *testing.T) {
	w := begin(t, setup{token: token})
	w.produce(t, "bad one")
	w.deadLetters(t, 1)
	b := w.login(t)
	place := letterIn(t, b.get("/ui/c/orders/letters").body)
	found := 0
	for _, path := range []string{"/ui/", "/ui/login", "/ui/events", "/ui/c/orders", "/ui/c/orders/letters",
		"/ui/c/orders/letters/" + place} {
		body := b.get(path).body
		for _, key := range []string{"href", "src", "data-live"} {
			for _, to := range attributes(t, body, key) {
				if strings.HasPrefix(to, "#") {
					continue
				}
				if a := b.get(to); a.status != http.StatusOK {
					t.Errorf("%s: %s=%q: %d", path, key, to, a.status)
				}
				found++
			}
		}
		for _, key := range []string{"action", "formaction"} {
			for _, to := range attributes(t, body, key) {
				if to == "/ui/logout" { // the last, below
					continue
				}
				if a := b.post(to, nil); a.status == http.StatusNotFound && !strings.Contains(a.body, "role=") {
					t.Errorf("%s: %s=%q: %d", path, key, to, a.status)
				}
				found++
			}
		}
	}
	if found < 40 {
		t.Errorf("%d were looked at", found)
	}
}
