package membroker

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/brokertest"
)

// impatient waits less, of the bubble's time: what does not happen by then will not.
func impatient(c Config) brokertest.Harness {
	h := harness(c)
	h.Patience = 6 * time.Second
	return h
}

// TestFailuresFindNothing: brokertest.Failures, which runs the suite in another way than Run, finds nothing where nothing is wrong.
// That the suite sees mistakes is proved by TestMutantsOfSuite in integration.
func TestFailuresFindNothing(t *testing.T) {
	for _, c := range []Config{{}, {Leased: true}} {
		if failed := brokertest.Failures(t, impatient(c)); len(failed) > 0 {
			t.Errorf("leased: %v: %v", c.Leased, failed)
		}
	}
}

// TestLeaseNotHeeded proves that the suite sees a harness whose New does not look at Setup.Lease.
func TestLeaseNotHeeded(t *testing.T) {
	h := impatient(Config{Leased: true})
	made := h.New
	h.New = func(t testing.TB, s brokertest.Setup) *brokertest.System {
		s.Lease = 0
		return made(t, s)
	}
	if failed := brokertest.Failures(t, h, "LeaseIsHeeded"); len(failed) == 0 {
		t.Error("the suite passes")
	}
}
