package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// Two groups that read the same messages publish what is their own, under names of their own: a broker that drops repeats has
// what each of them emitted, and each of their dead letters.
func TestGroupsBesideEachOther(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 20)
		p := b.Publisher()
		defer func() { _ = p.Close(context.Background()) }()
		var all []*running
		for _, group := range []string{"bills", "mails"} {
			all = append(all, start(t, b, consumer.Config{
				Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}, Group: group}), Output: p,
				DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
				Handler: func(ctx context.Context, m *consumer.Message) error {
					if m.Offset%2 == 0 {
						return consumer.Permanent(errors.New("bad for " + group))
					}
					return consumer.Emit(ctx, emitted(m, " "+group))
				}}))
		}
		time.Sleep(time.Minute)
		for _, r := range all {
			if err := r.end(); err != nil {
				t.Error(err)
			}
			if s := r.Stats(); s.DeadLettered != 10 || s.Handled != 10 {
				t.Errorf("%d handled, %d dead-lettered", s.Handled, s.DeadLettered)
			}
		}
		if emitted, dead := out(b, "out"), out(b, "dead"); len(emitted) != 20 || len(dead) != 20 {
			t.Errorf("%d emitted, %d dead letters, want 20 of each", len(emitted), len(dead))
		}
	})
}
