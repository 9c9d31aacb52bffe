package page_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// TestPutOffShows: what is put off is a backlog, and both pages say so: for what a limit puts off with the limit's name, and not
// for what its handler has wait for a time of its own.
func TestPutOffShows(t *testing.T) {
	for name, c := range map[string]struct {
		until       func(func() bool)
		waits, most string
	}{
		"by a limit": {func(func() bool) {}, "40 here until a limit lets them through",
			"Most of what is here waits for a limit: calls."},
		"by its handler": {nil, "40 here until the time that they were put off to", "Most of what is here was put off by its handler."},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, setup{handler: func(context.Context, *consumer.Message) error { return consumer.Defer(time.Hour, c.until) }})
			for i := range 40 {
				w.produce(t, fmt.Sprint(i))
			}
			eventually(t, "they are put off", func() bool { return w.consumer.Stats().PutOff == 40 })
			b := w.browser(t)
			for _, path := range []string{"/ui/", "/ui/c/orders"} {
				body := b.get(path).body
				if !strings.Contains(body, c.waits) || !strings.Contains(body, c.most) || strings.Contains(body, "It keeps up") {
					t.Errorf("%s does not say it:\n%s", path, body)
				}
			}
		})
	}
}

// TestMissingPlaceShows: that dead letters have no place is seen where all consumers are, too.
func TestMissingPlaceShows(t *testing.T) {
	w := begin(t, setup{missing: true})
	w.produce(t, "bad")
	b := w.browser(t)
	for _, path := range []string{"/ui/", "/ui/c/orders"} {
		eventually(t, path+" says it", func() bool {
			body := b.get(path).body
			return strings.Contains(body, "nothing can be published to orders-dead, and what has to stays here") &&
				strings.Contains(body, "Dead letters that could not be stored so far: 1.")
		})
	}
}

// nowhere is a publisher of which the broker has no topic.
type nowhere struct{ broker.Publisher }

func (nowhere) Publish(_ context.Context, ms []broker.Outgoing) error {
	errs := make([]error, len(ms))
	for i := range errs {
		errs[i] = broker.ErrNoTopic
	}
	return &broker.PublishError{Errs: errs}
}

func (nowhere) Find(context.Context, string) error   { return broker.ErrNoTopic }
func (nowhere) Create(context.Context, string) error { return broker.ErrNoTopic }
