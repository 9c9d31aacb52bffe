package consumer

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// TestWhyNothingStarts: the reason is that of what came first. A worker may see that a claim has turned before the revoker does,
// and then says what the revoker would say: one that was lost was not revoked, and after the begin of a drain it is the drain.
func TestWhyNothingStarts(t *testing.T) {
	revoke := func(_ *claim, keep broker.Keeper) { keep.Revoke(time.Now()) }
	lose := func(_ *claim, keep broker.Keeper) { keep.End(broker.ErrLost) }
	drain := func(k *claim, _ broker.Keeper) { k.close("drain") }
	for name, c := range map[string]struct {
		steps []func(*claim, broker.Keeper)
		want  string
	}{
		"revoked":                   {[]func(*claim, broker.Keeper){revoke}, "revoked"},
		"lost":                      {[]func(*claim, broker.Keeper){lose}, "lost"},
		"revoked, and too late":     {[]func(*claim, broker.Keeper){revoke, lose}, "lost"},
		"a drain":                   {[]func(*claim, broker.Keeper){drain}, "drain"},
		"a drain, and then revoked": {[]func(*claim, broker.Keeper){drain, revoke}, "drain"},
		"a drain, and then lost":    {[]func(*claim, broker.Keeper){drain, lose}, "drain"},
	} {
		b, keep := broker.NewClaim("t", 0, nil)
		k := &claim{Claim: b, leaving: make(chan struct{})}
		for _, step := range c.steps {
			step(k, keep)
		}
		if got := k.whyNothingStarts(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
