//go:build unix

package pool

import (
	"syscall"
	"time"
)

// cpuTime is the processor time that the process has used so far.
func cpuTime() (used time.Duration, known bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
