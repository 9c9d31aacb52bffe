package page_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin/page"
)

// TestReasonsOfSkips: why a handler skipped a message is the handler's text, as an error is: where payloads are hidden, it is for
// those who have logged in.
func TestReasonsOfSkips(t *testing.T) {
	for name, hidden := range map[string]bool{"shown": false, "hidden": true} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, setup{token: token, page: page.Config{HidePayloads: hidden},
				handler: func(_ context.Context, m *consumer.Message) error {
					return consumer.Skip("had before: " + string(m.Value))
				}})
			w.produce(t, "CANARY")
			eventually(t, "it is skipped", func() bool { return strings.Contains(w.login(t).get("/ui/events").body, "CANARY") })
			for _, path := range []string{"/ui/events", "/ui/events/live", "/ui/c/orders", "/ui/"} {
				body := w.browser(t).get(path).body
				if shown := strings.Contains(body, "CANARY"); shown && (hidden || !strings.Contains(path, "events")) {
					t.Errorf("a stranger sees it under %s:\n%s", path, body)
				} else if strings.Contains(path, "events") && !strings.Contains(body, "skipped") {
					t.Errorf("%s has no event of it:\n%s", path, body)
				}
			}
		})
	}
}

// TestSkipsShow: who only skips is seen at work: in the figures, in the picture and in what is said of it.
func TestSkipsShow(t *testing.T) {
	w := begin(t, setup{handler: func(context.Context, *consumer.Message) error { return consumer.Skip("had before") }})
	w.produce(t, slices.Repeat([]string{"x"}, 100)...)
	eventually(t, "they are skipped", func() bool { return w.consumer.Stats().Skipped == 100 })
	b := w.browser(t)
	eventually(t, "the picture has it", func() bool {
		says := regexp.MustCompile(`Messages a second.* skipped: now [0-9.]+, at most ([0-9.]+)`)
		m := says.FindStringSubmatch(b.get("/ui/c/orders").body)
		return m != nil && m[1] != "0"
	})
	if body := b.get("/ui/c/orders").body; !strings.Contains(body, "<dt>Skipped /s</dt>") {
		t.Errorf("%s", body)
	}
	if body := b.get("/ui/").body; !strings.Contains(body, "Skipped /s") {
		t.Errorf("%s", body)
	}
}
