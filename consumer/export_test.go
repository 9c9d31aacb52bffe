package consumer

import "github.com/longshoremq/longshore/pool"

// HoldWorkers has a worker call hold before it begins with what it was handed: as if it had no processor meanwhile. Call it before Run.
func (c *Consumer) HoldWorkers(hold func()) {
	c.do = func(w *pool.Worker[*run], r *run) {
		hold()
		c.handle(w, r)
	}
}
