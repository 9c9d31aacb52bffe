package pool

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
	"time"
)

// Pressure is how much of the machine is in use. Zero: unknown.
type Pressure struct {
	// CPU is the share in use of the processors that the process may use, GOMAXPROCS or the CPU quota of its cgroup.
	CPU float64
	// Memory is the share in use of the memory limit, GOMEMLIMIT or the memory.max of the cgroup, whichever is nearer.
	Memory float64
}

// Resource is what a gauge reads.
type Resource string

// The resources that RuntimeGauge reads.
const (
	CPU    Resource = "cpu"
	Memory Resource = "memory"
)

// RuntimeGauge is a Config.Gauge that reads this process: CPU against GOMAXPROCS and the CPU quota of its cgroup (v2), memory
// against GOMEMLIMIT and the cgroup's memory.max; where there is no limit memory is not minded. A pool whose handlers compute
// then stays near as many workers as there are processors, and several pools of a process, each with this gauge, do so together.
// It reads only what is named; nothing named is all. The function that it returns is safe for concurrent use, and what it says
// holds for some milliseconds.
func RuntimeGauge(only ...Resource) func() Pressure {
	cpu, memory := slices.Contains(only, CPU), slices.Contains(only, Memory)
	return func() Pressure {
		p := process().read()
		if len(only) > 0 && !cpu {
			p.CPU = 0
		}
		if len(only) > 0 && !memory {
			p.Memory = 0
		}
		return p
	}
}

// process is the gauge of all pools in this process: what each reads is the same.
var process = sync.OnceValue(func() *gauge { return newGauge("/proc/self/cgroup", "/sys/fs/cgroup", cpuTime, readRuntime()) })

// Times of a gauge.
const (
	gaugeEvery  = tick             // between two looks; in between the last reading holds
	limitsEvery = 10 * time.Second // between two looks at the cgroup's limits
)

type gauge struct {
	self, root string // the cgroup's name, and where cgroups are
	cpuTime    func() (used time.Duration, known bool)
	runtime    func() (wanted float64, memory float64) // processors that goroutines want, and the share of GOMEMLIMIT

	mu      sync.Mutex
	looked  time.Time
	used    time.Duration // CPU time then
	limited time.Time     // when the cgroup's limits were read
	group   cgroup
	last    Pressure
}

func newGauge(self, root string, cpuTime func() (time.Duration, bool), runtime func() (wanted, memory float64)) *gauge {
	return &gauge{self: self, root: root, cpuTime: cpuTime, runtime: runtime}
}

// read takes the larger of what the process used since the last look and of what its goroutines want now: others than this
// process may have the processors.
func (g *gauge) read() Pressure {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	since := now.Sub(g.looked)
	if since < gaugeEvery {
		return g.last
	}
	if now.Sub(g.limited) >= limitsEvery {
		g.limited, g.group = now, readCgroup(g.self, g.root)
	}
	wanted, memory := g.runtime()
	if used, known := g.cpuTime(); known {
		if !g.looked.IsZero() {
			wanted = max(wanted, (used-g.used).Seconds()/since.Seconds())
		}
		g.used = used
	}
	g.looked = now
	g.last = Pressure{CPU: min(1, wanted/g.processors()), Memory: max(memory, g.group.memory())}
	return g.last
}

// processors is how many the process may use.
func (g *gauge) processors() float64 {
	n := float64(runtime.GOMAXPROCS(0))
	if g.group.quota > 0 {
		n = min(n, g.group.quota)
	}
	return n
}

// readRuntime returns a function that asks the Go runtime.
func readRuntime() func() (wanted, memory float64) {
	samples := []metrics.Sample{
		{Name: "/sched/goroutines/running:goroutines"},
		{Name: "/sched/goroutines/runnable:goroutines"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	return func() (wanted, memory float64) {
		metrics.Read(samples)
		if running, runnable := samples[0].Value, samples[1].Value; running.Kind() == metrics.KindUint64 &&
			runnable.Kind() == metrics.KindUint64 {
			wanted = max(0, float64(running.Uint64()+runnable.Uint64())-1) // but for the one that asks
		}
		return wanted, memoryShare(samples[2].Value, samples[3].Value)
	}
}

// memoryShare is what the runtime holds of its limit.
func memoryShare(total, released metrics.Value) float64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 || limit <= 0 || total.Kind() != metrics.KindUint64 || released.Kind() != metrics.KindUint64 {
		return 0
	}
	return float64(total.Uint64()-released.Uint64()) / float64(limit)
}
