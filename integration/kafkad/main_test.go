//go:build unix

package kafkad

import (
	"testing"

	"go.uber.org/goleak"
)

// ending stops the shared cluster before the hunt for leaks.
type ending struct{ m *testing.M }

func (e ending) Run() int {
	defer StopShared()
	return e.m.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(ending{m}) }
