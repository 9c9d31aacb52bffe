// Package panicked names the line of a panic, so that an error can stand for its stack.
package panicked

import (
	"fmt"
	"runtime"
	"strings"
)

// At is the line that panicked, for who recovers, and the line that caller called where that is another one: a regexp's says
// nothing of whose it is. caller ends the name of the function that recovers; of a generic one with "[".
func At(caller string) string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	var lines []string // below the panic
	for below, more := false, true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime.gopanic"):
			below = true
		case below && strings.Contains(f.Function, caller):
			more = false
		case below && !strings.HasPrefix(f.Function, "runtime."):
			lines = append(lines, fmt.Sprintf("%s:%d", f.File, f.Line))
		}
	}
	if len(lines) > 1 {
		return lines[0] + ", from " + lines[len(lines)-1]
	}
	return strings.Join(lines, "")
}
