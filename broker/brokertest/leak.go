package brokertest

import (
	"fmt"
	"runtime"
	"strings"
	"time"
	"weak"
)

// noGoroutineLeft proves that no goroutine of the adapter outlives Close: after work, after none, and after an Open that failed.
func noGoroutineLeft(w *world) {
	if len(w.h.Goroutines) == 0 {
		w.h.skip(w, "Harness.Goroutines does not say how the adapter's goroutines are known")
	}
	before := w.h.running()
	worked, unused := w.join(), w.process()
	w.eventually(fmt.Sprintf("Harness.Goroutines %q match something while a source is open", w.h.Goroutines), func() bool {
		return len(w.h.running()) > len(before)
	})
	w.produce(0, 20)
	worked.mustAck(worked.take(20)...)
	w.settled()
	worked.close()
	unused.open()
	unused.close()
	w.process().close()
	if w.sys.Down != nil && w.sys.Up != nil {
		w.sys.Down(w)
		failed := w.process()
		ctx, cancel := within(w.lease)
		defer cancel()
		_ = failed.tryOpen(ctx)
		failed.close()
		w.sys.Up(w)
	}
	left := 0
	for end := time.Now().Add(w.h.patience()); time.Now().Before(end); time.Sleep(poll) {
		if left = len(w.h.running()) - len(before); left <= 0 {
			return
		}
	}
	w.Errorf("%d goroutines are left:\n%s", left, strings.Join(w.h.running(), "\n\n"))
}

// running returns the stacks of the adapter's goroutines.
func (h *Harness) running() (stacks []string) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, stack := range strings.Split(string(buf), "\n\n") {
		for _, part := range h.Goroutines {
			if strings.Contains(stack, part) && !strings.Contains(stack, "brokertest.(*Harness).running") {
				stacks = append(stacks, stack)
				break
			}
		}
	}
	return stacks
}

// stacks is what the adapter's goroutines do, as far as the harness says how they are known.
func (h *Harness) stacks() string {
	if running := h.running(); len(running) > 0 {
		return "\n" + strings.Join(running, "\n\n")
	}
	return ""
}

// noBufferLeft proves that a source which goes on does not keep the bytes of messages that were settled and let go of.
func noBufferLeft(w *world) {
	if !w.h.DropsSettled {
		w.need("Trim", w.sys.Trim != nil) // a broker in this process may keep what is not trimmed
	}
	const n, size = 20, 200_000
	m := w.join(budget(n, n*size))
	w.sys.Produce(w, 0, w.filled(w.sys.Topics[0], n, size)...)
	var values []weak.Pointer[byte]
	func() {
		ms := m.take(n)
		for _, msg := range ms {
			values = append(values, weak.Make(&msg.Value[0]))
		}
		m.mustAck(ms...)
	}()
	m.hand.untook()
	w.settled()
	if w.sys.Trim != nil {
		w.sys.Trim(w, w.sys.Topics[0], n)
	}
	w.produce(0, 8) // others go through the same places
	m.mustAck(m.take(8)...)
	m.hand.untook()
	w.settled()
	freed := "the messages' bytes were freed"
	if w.h.DropsSettled {
		freed += " (by the broker, too, if it is in this process: Harness.DropsSettled says that it lets go of what was settled)"
	}
	w.eventually(freed, func() bool {
		runtime.GC()
		for _, v := range values {
			if v.Value() != nil {
				return false
			}
		}
		return true
	})
}
