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
