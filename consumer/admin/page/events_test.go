package page_test

import (
	"context"
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
