package page_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin/page"
)

// TestKeysInHand: who has logged in sees the keys of what is in handlers and of what waits, whatever their bytes are; a stranger
// does not, nor does anybody where payloads are hidden.
func TestKeysInHand(t *testing.T) {
	for name, hidden := range map[string]bool{"shown": false, "hidden": true} {
		t.Run(name, func(t *testing.T) {
			open := make(chan struct{})
			w := begin(t, setup{token: token, page: page.Config{HidePayloads: hidden},
				handler: func(ctx context.Context, m *consumer.Message) error {
					if string(m.Value) == "waits" {
						return consumer.RetryAfter(errors.New("no tea"), time.Hour)
					}
					select {
					case <-open:
					case <-ctx.Done():
					}
					return nil
				}})
			defer close(open)
			for key, value := range map[string]string{"customer-7": "waits", hostile: "hangs", "\xff\xfe\xfd": "hangs"} {
				if err := w.Produce(broker.Outgoing{Topic: "orders", Key: []byte(key), Value: []byte(value)}); err != nil {
					t.Fatal(err)
				}
			}
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				if len(w.consumer.Calls(9)) == 2 && len(w.consumer.Parked(9)) == 1 {
					break
				}
				if time.Now().After(end) {
					t.Fatal("they are not in hand")
				}
			}
			seen := w.login(t).get("/ui/c/orders").body
			innocent(t, "detail", seen)
			for _, key := range []string{"customer-7", "0xfffefd", `alert(1)`} {
				if strings.Contains(seen, key) == hidden {
					t.Errorf("hidden %t, and the key %s is there: %t", hidden, key, !hidden)
				}
				if strings.Contains(w.browser(t).get("/ui/c/orders").body, key) {
					t.Errorf("a stranger sees the key %s", key)
				}
			}
		})
	}
}
