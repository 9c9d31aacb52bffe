package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

type ofKey struct{}

// claimsFor are n claims without a source.
func claimsFor(n int) (ks []*claim) {
	for i := range n {
		b, _ := broker.NewClaim("orders", int32(i), nil)
		k := &claim{Claim: b, id: uint64(i + 1), feed: &feed{}}
		k.ctx, k.cancel = context.WithCancelCause(context.WithValue(context.Background(), ofKey{}, i))
		ks = append(ks, k)
	}
	return ks
}

// TestContextsOfManyClaims: a worker that goes from claim to claim makes one small thing for each, and a child of the claim's
// context only for those that somebody asks.
func TestContextsOfManyClaims(t *testing.T) {
	ks := claimsFor(100)
	var x contexts
	defer x.end()
	i := 0
	visit := func() context.Context { i++; return x.get(ks[i%len(ks)]) }
	if n := testing.AllocsPerRun(1000, func() { visit() }); n > 1 {
		t.Errorf("%v allocations for a change of claim", n)
	}
	if n := testing.AllocsPerRun(1000, func() {
		if err := visit().Err(); err != nil {
			t.Error(err)
		}
	}); n > 1 {
		t.Errorf("%v allocations for one that is asked whether it has ended", n)
	}
}

// TestContextEnds: a handler's context ends with its claim, by the watchdog, and when the worker lets go of it, and says why,
// whether it was asked before or not. What is made of it does, too.
func TestContextEnds(t *testing.T) {
	why := errors.New("why")
	for name, tc := range map[string]struct {
		end   func(x *contexts, s *contextSlot, k *claim)
		cause error
	}{
		"the claim":    {func(_ *contexts, _ *contextSlot, k *claim) { k.cancel(why) }, why},
		"the watchdog": {func(_ *contexts, s *contextSlot, _ *claim) { s.made().cancel(why) }, why},
		"the worker":   {func(x *contexts, _ *contextSlot, _ *claim) { x.end() }, context.Canceled},
	} {
		for _, asked := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				var x contexts
				defer x.end()
				k := claimsFor(1)[0]
				s := x.get(k)
				var ctx context.Context = s
				if ctx.Err() != nil {
					t.Error("it has ended before")
				}
				child := context.Context(nil)
				if asked {
					var cancel func()
					child, cancel = context.WithTimeout(ctx, time.Hour)
					defer cancel()
				}
				tc.end(&x, s, k)
				if err := ctx.Err(); !errors.Is(err, context.Canceled) {
					t.Errorf("Err says %v", err)
				}
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, tc.cause) {
					t.Errorf("it ended because of %v, want %v", cause, tc.cause)
				}
				if ctx.Value(ofKey{}) != 0 {
					t.Error("it has lost its values")
				}
				if asked {
					<-child.Done()
					if cause := context.Cause(child); !errors.Is(cause, tc.cause) {
						t.Errorf("a child ended because of %v, want %v", cause, tc.cause)
					}
				}
			})
		}
	}
}
