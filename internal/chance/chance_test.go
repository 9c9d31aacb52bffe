package chance_test

import (
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/internal/chance"
)

// rolls are some of each kind.
func rolls(t *testing.T) (all []float64) {
	for range 50 {
		f, d := chance.Float64(), chance.Below(time.Second)
		if f < 0 || f >= 1 || d < 0 || d >= time.Second {
			t.Errorf("rolled %v and %v", f, d)
		}
		all = append(all, f, float64(d))
	}
	return all
}

func TestSeed(t *testing.T) {
	seeded := func(seed uint64) []float64 {
		defer chance.Seed(seed)()
		return rolls(t)
	}
	if !slices.Equal(seeded(1), seeded(1)) {
		t.Error("one seed gave two rows of numbers")
	}
	if slices.Equal(seeded(1), seeded(2)) {
		t.Error("two seeds gave one row of numbers")
	}
	if slices.Equal(rolls(t), rolls(t)) || slices.Equal(rolls(t), seeded(1)) {
		t.Error("without a seed the numbers repeat")
	}
}
