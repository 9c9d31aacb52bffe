//go:build unix

package inbox

import (
	"context"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// A handler that a configuration file names has its table pruned: nothing is left of what was finished, and the floor is kept.
func TestPrunedBeside(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		x := d.box(t, db)
		r := handlers.NewRegistry()
		err := r.Register("bill", func(s *handlers.Setup, o handlers.Options) (consumer.Handler, error) {
			s.Beside(func(ctx context.Context, c *consumer.Consumer) error { return x.Run(ctx, c) })
			return writer(d, db, x, false), o.Decode(&struct{}{})
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &handlers.Setup{}
		handler, err := r.Build("bill", s, handlers.NewOptions(nil))
		if err != nil {
			t.Fatal(err)
		}
		b := membroker.New(membroker.Config{})
		for range 20 {
			if err := b.Produce(broker.Outgoing{Topic: "orders"}); err != nil {
				t.Fatal(err)
			}
		}
		c, err := consumer.New(consumer.Config{
			Source:  b.Source(membroker.SourceConfig{Group: "billing", Topics: []string{"orders"}}),
			Handler: handler, Output: b.Publisher(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx, c) }()
		for end := time.Now().Add(patience); b.Unsettled("billing") != 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		stop()
		if err := <-ran; err != nil {
			t.Fatal(err)
		}
		if n := rows(t, db, "effects"); n != 20 {
			t.Errorf("%d effects, want 20", n)
		}
		if n := rows(t, db, "longshore_inbox"); n != 0 {
			t.Errorf("%d rows are left of what is finished", n)
		}
		if n := rows(t, db, "longshore_inbox_floors"); n == 0 {
			t.Error("no floor is kept")
		}
	})
}

var _ broker.FloorReporter = (*consumer.Consumer)(nil)
