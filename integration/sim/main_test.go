package sim

import (
	"testing"

	"go.uber.org/goleak"
)

// nats-server has one goroutine for all servers, which outlives the bubbles.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}
