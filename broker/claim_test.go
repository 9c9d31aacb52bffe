package broker_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// state reads a claim by its channels, as the engine does.
func state(c *broker.Claim) string {
	select {
	case <-c.Ended():
		return "ended"
	default:
	}
	select {
	case <-c.Revoking():
		return "revoking"
	default:
		return "open"
	}
}

func TestClaimGoesForwardOnly(t *testing.T) {
	lost := fmt.Errorf("rebalanced: %w", broker.ErrLost)
	first, second := time.Unix(100, 0), time.Unix(200, 0)
	for _, tc := range []struct {
		name  string
		steps []string
		want  []string
	}{
		{"revoke, end", []string{"revoke", "end"}, []string{"revoking", "ended"}},
		{"end without revoke", []string{"end"}, []string{"ended"}},
		{"revoke twice", []string{"revoke", "revoke again"}, []string{"revoking", "revoking"}},
		{"end twice", []string{"end", "end again"}, []string{"ended", "ended"}},
		{"revoke after end", []string{"end", "revoke"}, []string{"ended", "ended"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, k := broker.NewClaim("orders", 3, "mine")
			if state(c) != "open" || !c.Startable() {
				t.Fatalf("a new claim is %s, startable %v", state(c), c.Startable())
			}
			for i, step := range tc.steps {
				switch step {
				case "revoke":
					k.Revoke(first)
				case "revoke again":
					k.Revoke(second)
				case "end":
					k.End(lost)
				case "end again":
					k.End(broker.ErrClosed)
				}
				if got := state(c); got != tc.want[i] {
					t.Errorf("after %q it is %s, want %s", step, got, tc.want[i])
				}
				if c.Startable() {
					t.Errorf("after %q it is startable", step)
				}
			}
			if tc.steps[0] == "revoke" && !c.By().Equal(first) {
				t.Errorf("By is %v, want the first call's %v", c.By(), first)
			}
			if state(c) == "ended" && !errors.Is(c.Cause(), broker.ErrLost) {
				t.Errorf("Cause is %v, want the first call's", c.Cause())
			}
		})
	}
}

func TestClaimKeepsWhatItWasMadeOf(t *testing.T) {
	c, k := broker.NewClaim("orders", 3, "mine")
	if k.Claim() != c || c.Topic != "orders" || c.Partition != 3 || c.State != "mine" {
		t.Errorf("claim is %+v", c)
	}
}

// By and Cause wait for what they tell.
func TestClaimWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, k := broker.NewClaim("", -1, nil)
		by := time.Now().Add(time.Minute)
		var told []string
		var mu sync.Mutex
		tell := func(s string) { mu.Lock(); told = append(told, s); mu.Unlock() }
		go func() {
			if got := c.By(); !got.Equal(by) {
				t.Errorf("By is %v, want %v", got, by)
			}
			tell("by")
		}()
		go func() {
			if got := c.Cause(); !errors.Is(got, broker.ErrClosed) {
				t.Errorf("Cause is %v", got)
			}
			tell("cause")
		}()
		synctest.Wait()
		tell("revoke")
		k.Revoke(by)
		synctest.Wait()
		tell("end")
		k.End(broker.ErrClosed)
		synctest.Wait()
		if got := fmt.Sprint(told); got != "[revoke by end cause]" {
			t.Errorf("order was %v", got)
		}
	})
}

// Everything may come from everywhere at once; one By and one Cause win, and everybody reads the same.
func TestClaimConcurrently(t *testing.T) {
	for range 200 {
		c, k := broker.NewClaim("", -1, nil)
		var all sync.WaitGroup
		causes, bys := make([]error, 8), make([]time.Time, 8)
		for i := range 8 {
			all.Go(func() {
				if i%2 == 0 {
					k.Revoke(time.Unix(int64(i), 0))
				}
				k.End(fmt.Errorf("%d: %w", i, broker.ErrLost))
				if c.Startable() {
					t.Error("startable after End")
				}
				causes[i], bys[i] = c.Cause(), c.By()
			})
		}
		all.Wait()
		for i := range causes {
			if causes[i] != causes[0] || !bys[i].Equal(bys[0]) {
				t.Fatalf("readers disagree: %v, %v", causes, bys)
			}
		}
	}
}

// Whoever follows a claim hears of each turn, also of one that was before.
func TestClaimTellsWhoFollows(t *testing.T) {
	for _, steps := range []string{"follow revoke end", "revoke follow end", "revoke end follow", "follow end", "end follow"} {
		t.Run(steps, func(t *testing.T) {
			c, k := broker.NewClaim("orders", 3, nil)
			var heard []string
			for step := range strings.FieldsSeq(steps) {
				switch step {
				case "follow":
					c.Follow(func() { heard = append(heard, state(c)) })
				case "revoke":
					k.Revoke(time.Unix(100, 0))
				case "end":
					k.End(broker.ErrClosed)
				}
				if n := len(heard); state(c) != "open" && strings.Contains(steps, "follow "+step) && heard[n-1] != state(c) {
					t.Errorf("after %q it is %s, and %q was heard", step, state(c), heard)
				}
			}
			if n := len(heard); n == 0 || heard[n-1] != "ended" {
				t.Errorf("heard %q, and not that it has ended", heard)
			}
			k.Revoke(time.Unix(200, 0))
			k.End(broker.ErrLost)
			if n := len(heard); n > 2 {
				t.Errorf("heard %q: more than its turns", heard)
			}
		})
	}
}

func TestClaimIsFollowedWhileItEnds(t *testing.T) {
	for range 1000 {
		c, k := broker.NewClaim("orders", 3, nil)
		ended := make(chan struct{}, 2)
		var both sync.WaitGroup
		both.Go(func() { k.End(broker.ErrLost) })
		both.Go(func() {
			c.Follow(func() {
				if state(c) == "ended" {
					ended <- struct{}{}
				}
			})
		})
		both.Wait()
		if len(ended) == 0 {
			t.Fatal("whoever followed did not hear of the end")
		}
	}
}
