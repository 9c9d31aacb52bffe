package kafkabroker

import (
	"os"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// testLease is the session timeout of the tests' members.
const testLease = 300 * time.Millisecond

// harness is the suite's, on systems that newSystem makes with leases of at least that much.
func harness(balancer string, lease time.Duration,
	newSystem func(t testing.TB, s brokertest.Setup, balancer string) *testSystem) brokertest.Harness {
	return brokertest.Harness{
		New:        func(t testing.TB, s brokertest.Setup) *brokertest.System { return newSystem(t, s, balancer).system() },
		Traits:     broker.Traits{Ordered: true, Attempts: broker.AtLeast, Together: true, Atomic: balancer == "transactional"},
		Lease:      lease,
		RevokeWait: revokeWait(balancer, lease),
		KeepsRuns:  true,
		Operations: true,
		SideBySide: true, // each case has a network and a group of its own, and topics
		Goroutines: []string{"broker/kafkabroker.("},
		Cannot: map[string]string{
			"Redeliver":     "Kafka delivers nothing again by itself",
			"ForgetSettles": "a coordinator that answered a commit has written it",
		},
	}
}

// revokeWait is longer for eager balancers: each join of another member revokes everything, also under handlers that take some
// leases.
func revokeWait(balancer string, lease time.Duration) time.Duration {
	if schemes[balancer].cooperative || balancer == "transactional" || balancer == "consumer" {
		return 2 * lease
	}
	return 6 * lease
}

// TestConformance runs the suite on an in-process Kafka, with LONGSHORE_REAL also under an eager balancer, with the group
// protocol of today and with transactions.
func TestConformance(t *testing.T) {
	for _, balancer := range []string{"sticky", "consumer", "transactional", "range"} {
		t.Run(balancer, func(t *testing.T) {
			if balancer != "sticky" && os.Getenv("LONGSHORE_REAL") == "" {
				t.Skip("a variant of the suite, which runs with LONGSHORE_REAL=1")
			}
			t.Parallel()
			brokertest.Run(t, harness(balancer, testLease, fakeSystem))
		})
	}
}

// TestConformanceReal runs it on a real Kafka.
func TestConformanceReal(t *testing.T) {
	lease, probe := realLease(t), realProbe(t)
	for _, balancer := range []string{"sticky", "range", "consumer", "transactional"} {
		t.Run(balancer, func(t *testing.T) {
			h := harness(balancer, lease, realSystem)
			h.Patience, h.Probe = time.Minute, probe // the broker is another process, beside others
			brokertest.Run(t, h)
		})
	}
}
