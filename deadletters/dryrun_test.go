package deadletters

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/longshoremq/longshore/broker"
)

// places is a publisher that knows which topics there are.
type places struct {
	broker.Publisher
	find  func(ctx context.Context, topic string) error
	asked int
}

func (p *places) Find(ctx context.Context, topic string) error { p.asked++; return p.find(ctx, topic) }

func (p *places) Create(context.Context, string) error { return errors.New("a dry run makes nothing") }

// TestDryRunLooksForThePlace: a letter that has no place to go would not be replayed. Where nobody can tell, it may be.
func TestDryRunLooksForThePlace(t *testing.T) {
	for name, c := range map[string]struct {
		find     func(ctx context.Context, topic string) error
		replayed int64
	}{
		"it is there": {func(context.Context, string) error { return nil }, 6},
		"it is not":   {func(context.Context, string) error { return broker.ErrNoTopic }, 0},
		"nobody can tell": {func(ctx context.Context, _ string) error {
			<-ctx.Done() // as where we may not ask
			return ctx.Err()
		}, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := bench(t, false, 6)
			p := &places{Publisher: b.Publisher(), find: c.find}
			sum, err := open(t, b, p).Replay(t.Context(), Replay{To: "elsewhere", DryRun: true,
				OnLetter: func(x *Letter, to string, refused error) {
					if (refused == nil) != (c.replayed > 0) || refused != nil && !errors.Is(refused, broker.ErrNoTopic) {
						t.Errorf("%s: %v to %q: %v", name, x.Place, to, refused)
					}
				}})
			if err != nil || sum.Chosen != 6 || sum.Replayed != c.replayed || sum.Refused != 6-c.replayed || p.asked != 1 {
				t.Errorf("%s: %+v %v, asked %d times", name, sum, err, p.asked)
			}
		})
	}
}
