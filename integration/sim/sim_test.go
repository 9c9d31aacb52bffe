package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

var (
	from  = flag.Uint64("sim.from", 1, "the first seed")
	count = flag.Uint64("sim.seeds", 48, "how many seeds for the lightest world; for others as many fewer as they are heavier")
	world = flag.String("sim.world", "", "this world alone")
	told  = flag.Bool("sim.told", false, "print all that happened in a run with findings, with the engine's log")
)

// TestSeeds runs schedules of seeds that are always the same. make sim runs others.
func TestSeeds(t *testing.T) {
	for _, k := range Kinds() {
		if *world != "" && *world != k.Name {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			w := &Watch{Logs: *told}
			defer w.stand(t)()
			var sum Result
			began, n := time.Now(), max(1, *count/uint64(k.Heavy))
			for seed := *from; seed < *from+n; seed++ {
				s := Plan(k, seed)
				r := Run(t, s, w)
				sum.Messages, sum.Runs = sum.Messages+r.Messages, sum.Runs+r.Runs
				sum.Again, sum.Virtual = sum.Again+r.Again, sum.Virtual+r.Virtual
				if len(r.Findings) > 0 {
					t.Errorf("seed %d: %s", seed, r.about(*told))
				}
			}
			t.Logf("%d schedules, %d messages, %d of them again, %d runs of handlers, %v of virtual time: %.0f schedules a second",
				n, sum.Messages, sum.Again, sum.Runs, sum.Virtual.Round(time.Minute), float64(n)/time.Since(began).Seconds())
		})
	}
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
		t.Logf("world %s can do %s", k.Name, strings.Join(can, ", "))
	}
}

// stillFor is how long of real time a bubble's time may stand still. Some milliseconds are usual.
const stillFor = 20 * time.Second

// stand ends the test's process, with all stacks, where time does not go on: nothing else can, inside a bubble.
func (w *Watch) stand(t *testing.T) (end func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		last, since := int64(0), time.Now()
		for t := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-t.C:
			case <-over:
				t.Stop()
				return
			}
			if now := w.Now(); now != last {
				last, since = now, time.Now()
				continue
			}
			if time.Since(since) > stillFor {
				fmt.Printf("FINDING: time has stood still for %v: something spins, or waits for a mutex\n%v", stillFor, w.at.Load())
				_ = pprof.Lookup("goroutine").WriteTo(os.Stdout, 2)
				os.Exit(3)
			}
		}
	}()
	return func() { close(over); <-ended }
}
