//go:build !unix

package pool

import "time"

// cpuTime is not known here: how many goroutines want a processor is what tells.
func cpuTime() (used time.Duration, known bool) { return 0, false }
