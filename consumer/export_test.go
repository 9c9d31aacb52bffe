package consumer

import (
	"os"
	"testing"

	"github.com/longshoremq/longshore/pool"
)

// HoldWorkers has a worker call hold before it begins with what it was handed: as if it had no processor meanwhile. Call it
// before Run.
func (c *Consumer) HoldWorkers(hold func()) {
	c.workers.do = func(w *pool.Worker[*work], r *work) {
		hold()
		c.workers.handle(w, r)
	}
}

// TargetOf is where a letter of that class and handler goes.
func (d *DeadLetter) TargetOf(class, handler string) string { return d.target(class, handler) }

// WithStderr returns what f writes to stderr.
func WithStderr(t *testing.T, f func()) string {
	t.Helper()
	real := os.Stderr
	defer func() { os.Stderr = real }()
	file, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = file
	f()
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	said, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}
