//go:build unix

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// burst publishes 300 MB while every handler stands still: the consumer takes its budget of 64 MB and leaves the rest to the
// broker.
func burst(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	f.calm(t)
	f.config.SlowOneIn = 0
	f.config.Gate = filepath.Join(t.TempDir(), "gate")
	f.startConsumers(t, 1)
	p := f.consumers[0]
	const messages, size, budget = 600, 512 << 10, 64
	f.load = f.startSizedLoad(t, killRate, messages, size)
	f.load.finish()
	time.Sleep(lengths(2*time.Second, 10*time.Second)) // for it to take more than it may
	peak := peakOf(t, p)
	if n := len(f.entries(t)); n != 0 {
		t.Errorf("%d handled through the gate", n)
	}
	// The race detector's own memory is not the product's.
	if limit := budget + 40; peak > limit && !raceDetector() {
		t.Errorf("it took %d MB at most, more than the budget of %d MB and 40 MB", peak, budget)
	}
	if err := os.WriteFile(f.config.Gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := f.finish(t)
	a.noDuplicates(t)
	return fmt.Sprintf("%d × %d KB under handlers that stand still: at most %d MB, with a budget of %d MB; %v", messages, size>>10,
		peak, budget, a)
}

// peakOf is the most memory that a process ever had, in MB. 0 where the system does not say it in /proc.
func peakOf(t *testing.T, p *process) (mb int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if os.IsNotExist(err) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	var kb int
	if _, err := fmt.Sscan(after, &kb); err != nil {
		t.Fatalf("the most memory of a process: %v", err)
	}
	return kb / 1024
}

// raceDetector says whether this binary, which is the consumers' too, was built with it.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// flapPool lets the pool have one worker and sixteen in turns of 100 ms, under a load that needs more than one. Goroutines are
// back at the end: a consumer that leaves some behind exits with 3.
func flapPool(t *testing.T, k kind) string {
	f := k.newField(t, k.start(t))
	f.calm(t)
	f.config.Flap = 100 * time.Millisecond
	f.startConsumers(t, 2)
	f.load = f.startLoad(t, faultRate, 0)
	turns := lengths(20, 200)
	f.atWork(t)
	for _, p := range f.consumers {
		p.says(t, "scaled", turns)
	}
	a := f.finish(t)
	a.noDuplicates(t)
	return fmt.Sprintf("%d changes of size in each of two; %v", turns, a)
}
