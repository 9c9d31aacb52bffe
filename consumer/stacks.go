package consumer

import (
	"bytes"
	"runtime"
	"strconv"
)

// goroutineID reads the calling goroutine's number from its stack's first line, "goroutine 12 [running]:". It serves to find its
// stack among all others, nothing else.
func goroutineID() uint64 {
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	if len(fields) < 2 {
		return 0
	}
	id, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return id
}

// allStacks returns the stacks of all goroutines, the first MiB of them. It stops the world meanwhile.
func allStacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// stackOf returns the stack of one goroutine; "" when it is not among them.
func stackOf(stacks []byte, id uint64) string {
	head := []byte("goroutine " + strconv.FormatUint(id, 10) + " [")
	for len(stacks) > 0 {
		one, rest, _ := bytes.Cut(stacks, []byte("\n\n"))
		if bytes.HasPrefix(one, head) {
			return string(one)
		}
		stacks = rest
	}
	return ""
}
