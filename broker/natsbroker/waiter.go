package natsbroker

import "github.com/longshoremq/longshore/broker/kit"

// waiter is somebody who waits for a bell; nobody else may ring it. Not safe for concurrent use.
type waiter struct {
	bell  kit.Bell
	waits bool
}

// rouse wakes who waits.
func (w *waiter) rouse() {
	if w.waits {
		w.waits = false
		w.bell.Ring()
	}
}
