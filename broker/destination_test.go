package broker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

// What brokers keep for themselves is refused, with the name and why; a name that only looks like one is not.
func TestCheckDestination(t *testing.T) {
	for _, topic := range []string{"$JS.API.STREAM.DELETE.VICTIM", "$SYS.REQ.SERVER.PING", "$", "_INBOX.a.b", "_R_.x", "_GR_.x",
		"__consumer_offsets"} {
		if err := broker.CheckDestination(topic); !errors.Is(err, broker.ErrReserved) || !strings.Contains(err.Error(), topic) {
			t.Errorf("%s: %v", topic, err)
		}
	}
	for _, topic := range []string{"orders", "a.$JS.API", "_INBOXES.a", "_orders", "a__b", ""} {
		if err := broker.CheckDestination(topic); err != nil {
			t.Error(err)
		}
	}
}
