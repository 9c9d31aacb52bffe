package pool

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// fakeGroup writes a process's cgroup and its files, and returns what a gauge needs of them.
func fakeGroup(t *testing.T, name string, files map[string]string) (self, root string) {
	t.Helper()
	root = t.TempDir()
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range files {
		write(filepath.Join(root, file), text)
	}
	self = filepath.Join(t.TempDir(), "cgroup")
	write(self, "0::"+name+"\n")
	return self, root
}

func TestCgroupLimits(t *testing.T) {
	const group = "/kubepods/pod/c"
	for name, c := range map[string]struct {
		files         map[string]string
		quota, memory float64
	}{
		"none":           {nil, 0, 0},
		"a quota of 1.5": {map[string]string{group + "/cpu.max": "150000 100000\n"}, 1.5, 0},
		"no quota":       {map[string]string{group + "/cpu.max": "max 100000\n"}, 0, 0},
		"the parent's is lower": {map[string]string{group + "/cpu.max": "400000 100000\n", "kubepods/cpu.max": "200000 100000\n"}, 2,
			0},
		"the parent's is higher": {map[string]string{group + "/cpu.max": "50000 100000\n", "kubepods/cpu.max": "200000 100000\n"}, 0.5,
			0},
		"memory, without the files that can go": {map[string]string{group + "/memory.max": "1000\n", group + "/memory.current": "900\n",
			group + "/memory.stat": "anon 500\ninactive_file 300\nactive_file 100\n"}, 0, 0.6},
		"the parent's memory": {map[string]string{group + "/memory.max": "max\n", group + "/memory.current": "5\n",
			"kubepods/pod/memory.max": "100", "kubepods/pod/memory.current": "95"}, 0, 0.95},
		"the root's, as in a container": {map[string]string{"memory.max": "100", "memory.current": "50"}, 0, 0.5},
		"nonsense":                      {map[string]string{group + "/cpu.max": "-1 x\n", group + "/memory.max": "lots\n"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := readCgroup(fakeGroup(t, group, c.files))
			if math.Abs(got.quota-c.quota) > 1e-9 || math.Abs(got.memory()-c.memory) > 1e-9 {
				t.Errorf("quota %v, memory %v; want %v, %v", got.quota, got.memory(), c.quota, c.memory)
			}
		})
	}
}

// CPU time against the quota where that is lower than GOMAXPROCS, the same for whoever asks in between, and 0 again when nothing
// is used.
func TestGaugeReadsCPUTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used time.Duration
		self, root := fakeGroup(t, "/c", map[string]string{"/c/cpu.max": "50000 100000"})
		wanted := 0.0
		g := newGauge(self, root, func() (time.Duration, bool) { return used, true }, func() (float64, float64) { return wanted, 0 })
		g.read()
		run := func(cpu time.Duration) float64 {
			time.Sleep(20 * time.Millisecond)
			used += cpu
			return g.read().CPU
		}
		if got := run(10 * time.Millisecond); got != 1 {
			t.Errorf("all of half a processor is read as %v", got)
		}
		time.Sleep(time.Millisecond)
		if got := g.read().CPU; got != 1 {
			t.Errorf("between two looks %v is read", got)
		}
		if got := run(4725 * time.Microsecond); math.Abs(got-0.45) > 0.001 { // of half of 21 ms
			t.Errorf("45 %% are read as %v", got)
		}
		if got := run(0); got != 0 {
			t.Errorf("none is read as %v", got)
		}
		if wanted = 0.5; run(0) != 1 {
			t.Error("a goroutine that does not get its half of a processor does not count")
		}
		if g.processors() != 0.5 || runtime.GOMAXPROCS(0) < 1 {
			t.Errorf("%v processors", g.processors())
		}
	})
}
