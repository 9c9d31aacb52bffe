package sim

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

var (
	from  = flag.Uint64("sim.from", 0, "the first seed; 0: 1, and where many are run one that was never used")
	count = flag.Uint64("sim.seeds", 48, "how many seeds for the lightest world; for others as many fewer as they are heavier")
	world = flag.String("sim.world", "", "this world alone")
	told  = flag.Bool("sim.told", false, "print all that happened in a run with findings, with the engine's log")
)

// TestSeeds runs schedules of seeds that are always the same. make sim runs others.
func TestSeeds(t *testing.T) {
	for _, k := range chosen(t) {
		t.Run(k.Name, func(t *testing.T) {
			w := &Watch{Logs: *told}
			defer w.Stand(os.Stdout)()
			var sum Result
			began, n := time.Now(), max(1, *count/uint64(k.Heavy))
			first := max(1, *from)
			for seed := first; seed < first+n; seed++ {
				s := Plan(k, seed)
				r := Run(t, s, w)
				sum.Messages, sum.Runs = sum.Messages+r.Messages, sum.Runs+r.Runs
				sum.Again, sum.Virtual = sum.Again+r.Again, sum.Virtual+r.Virtual
				if len(r.Findings) > 0 {
					t.Errorf("seed %d: %s", seed, r.about(*told))
				}
			}
			t.Logf("%d schedules, %d messages, %d of them again, %d runs of handlers, "+
				"%v of virtual time: %.0f schedules a second",
				n, sum.Messages, sum.Again, sum.Runs, sum.Virtual.Round(time.Minute), float64(n)/time.Since(began).Seconds())
		})
	}
}

// chosen are the worlds to run.
func chosen(t *testing.T) []Kind {
	if *world == "" {
		return Kinds()
	}
	k, err := KindOf(*world)
	if err != nil {
		t.Fatal(err)
	}
	return []Kind{k}
}

// TestKinds: each world says of each fault whether it can do it.
func TestKinds(t *testing.T) {
	for _, k := range Kinds() {
		if err := k.validate(); err != nil {
			t.Error(err)
		}
		var can []string
		for _, w := range Whats() {
			if err := k.Can(w); err != nil {
				t.Log(err)
				continue
			}
			can = append(can, string(w))
		}
		if k.EmitsNot != "" {
			t.Logf("world %s has no outputs: %s", k.Name, k.EmitsNot)
		}
		t.Logf("world %s can do %s", k.Name, strings.Join(can, ", "))
	}
}
