package natsbroker_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker/natsbroker"
)

// Where a consumer begins that is made in a stream which has messages already, and gets another one then.
func TestDeliver(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 3)
	third := must(must(a.js.Stream(t.Context(), "S")).GetMsg(t.Context(), 3)).Time
	const newest = 0
	last := int64(3)
	for name, c := range map[string]struct {
		set  func(*natsbroker.Config)
		want int64
	}{
		"by default":    {func(*natsbroker.Config) {}, 1},
		"all":           {func(c *natsbroker.Config) { c.Deliver = jetstream.DeliverAllPolicy }, 1},
		"only new ones": {func(c *natsbroker.Config) { c.Deliver = jetstream.DeliverNewPolicy }, newest},
		"by a sequence": {func(c *natsbroker.Config) { c.Deliver, c.StartSequence = jetstream.DeliverByStartSequencePolicy, 2 }, 2},
		"by a time":     {func(c *natsbroker.Config) { c.Deliver, c.StartTime = jetstream.DeliverByStartTimePolicy, third }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(ts.url())
			cfg.Consumer = strings.ReplaceAll(name, " ", "-")
			c.set(&cfg)
			s := open(t, cfg)
			a.publish(4, 4)
			last++
			want := c.want
			if want == newest {
				want = last
			}
			if m := receive(t, s, 1)[0]; m.Offset != want {
				t.Errorf("the first is %d, want %d", m.Offset, want)
			}
		})
	}
}
