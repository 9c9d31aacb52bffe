package pool

import "time"

// Pressure is how much of the machine is in use. Zero: unknown.
type Pressure struct {
	// CPU is the share of the processors that the process may use which is in use: 1 is all.
	CPU float64
	// Wait is how long a goroutine that could run waits for a processor, of late.
	Wait time.Duration
	// Memory is the share of the memory limit in use.
	Memory float64
}

// guard keeps decisions within what memory and CPU allow.
type guard struct{}

func (g *guard) limit(d Decision) Decision { return d }
