package main

import (
	"fmt"
	"runtime"
	"syscall"
	"time"
)

// A sample is what one process measured, per message.
type sample struct {
	WallNS float64 `json:"wall_ns"`
	CPUNS  float64 `json:"cpu_ns"` // user and system, of all threads
	Allocs float64 `json:"allocs"`
	Bytes  float64 `json:"bytes"`
	Tail   float64 `json:"tail_ns"` // the 99th percentile, where it is measured

	// Switches is how often a thread gave up its processor. The others are there where a system measures them: what the process
	// took before it was measured, and what it has come to have in all.
	Switches   float64 `json:"switches"`
	StartNS    float64 `json:"start_ns"`
	AllWallNS  float64 `json:"all_wall_ns"` // with the time before the first message
	RSS        float64 `json:"rss"`
	Sockets    int     `json:"sockets"`
	Goroutines int     `json:"goroutines"`
}

// A meter takes a sample from start to stop.
type meter struct {
	wall time.Time
	cpu  time.Duration
	gave int64
	mem  runtime.MemStats
}

func start() *meter {
	runtime.GC()
	return begin()
}

// begin is start without a garbage collection, for where the system is under way already.
func begin() *meter {
	m := new(meter)
	runtime.ReadMemStats(&m.mem)
	m.cpu, m.gave = cpuTime(), switches()
	m.wall = time.Now()
	return m
}

func (m *meter) stop(n int) sample {
	wall, cpu, gave := time.Since(m.wall), cpuTime()-m.cpu, switches()-m.gave
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	per := 1 / float64(n)
	return sample{WallNS: float64(wall) * per, CPUNS: float64(cpu) * per, Switches: float64(gave) * per,
		Allocs: float64(mem.Mallocs-m.mem.Mallocs) * per, Bytes: float64(mem.TotalAlloc-m.mem.TotalAlloc) * per}
}

func cpuTime() time.Duration {
	r := usage()
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// switches is how often threads have given up their processor so far.
func switches() int64 {
	r := usage()
	return int64(r.Nvcsw + r.Nivcsw)
}

func usage() (r syscall.Rusage) {
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(fmt.Sprintf("getrusage: %v", err))
	}
	return r
}
