package natsbroker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

// A subject may be made of what stands in messages. One that is longer than a server takes is refused: sent, it would end the
// connection, with what others have on their way, and do so again at each try.
func TestPublishToASubjectThatIsTooLong(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := newPublisher(t, ts.url())
	long := func(n int) broker.Outgoing {
		return broker.Outgoing{Topic: "s." + strings.Repeat("x", n), Value: []byte("x"), ID: "7"}
	}
	if err := p.Publish(t.Context(), []broker.Outgoing{long(4000)}); err != nil {
		t.Errorf("one that the server takes: %.100v", err)
	}
	for _, n := range []int{4096, 5000, 100_000} {
		var failed *broker.PublishError
		err := p.Publish(t.Context(), []broker.Outgoing{{Topic: "s.a"}, long(n), {Topic: "s.a"}})
		if !errors.As(err, &failed) {
			t.Fatalf("a subject of %d bytes: %v", n, err)
		}
		if failed.Errs[0] != nil || failed.Errs[2] != nil || !errors.Is(failed.Errs[1], broker.ErrRefused) {
			t.Errorf("beside a subject of %d bytes: %v, %v; that one is refused: %v", n, failed.Errs[0], failed.Errs[2],
				errors.Is(failed.Errs[1], broker.ErrRefused))
		}
	}
	if n := must(a.js.Stream(t.Context(), "S")).CachedInfo().State.Msgs; n != 7 {
		t.Errorf("%d messages are stored", n)
	}
}
