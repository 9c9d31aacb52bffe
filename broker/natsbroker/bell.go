package natsbroker

// A bell wakes one goroutine, which then looks at everything. Rings before it looks are one.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

// ring does not block.
func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// waiter is somebody who waits for a bell; nobody else may ring it. Not safe for concurrent use.
type waiter struct {
	bell  bell
	waits bool
}

// rouse wakes who waits.
func (w *waiter) rouse() {
	if w.waits {
		w.waits = false
		w.bell.ring()
	}
}
