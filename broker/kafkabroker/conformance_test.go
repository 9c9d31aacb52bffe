package kafkabroker

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// testLease is the session timeout of the tests' members.
const testLease = 300 * time.Millisecond

// harness is the suite's, on systems that newSystem makes with leases of at least that much.
func harness(balancer string, lease time.Duration, newSystem func(t testing.TB, s brokertest.Setup, balancer string) *testSystem) brokertest.Harness {
	return brokertest.Harness{
		New:        func(t testing.TB, s brokertest.Setup) *brokertest.System { return newSystem(t, s, balancer).system() },
		Traits:     broker.Traits{Ordered: true, Attempts: broker.AtLeast},
		Lease:      lease,
		RevokeWait: revokeWait(balancer, lease),
		Patience:   60 * time.Second,
		KeepsRuns:  true,
		Goroutines: []string{"broker/kafkabroker.("},
		Cannot: map[string]string{
			"Redeliver":     "Kafka delivers nothing again by itself",
			"ForgetSettles": "a coordinator that answered a commit has written it",
		},
	}
}

// revokeWait is longer for eager balancers: each join of another member revokes everything, also under handlers that take some leases.
func revokeWait(balancer string, lease time.Duration) time.Duration {
	if schemes[balancer].cooperative {
		return 2 * lease
	}
	return 6 * lease
}

// TestConformance runs the suite on an in-process Kafka. Its cases mostly wait, so one of the balancers has a process of its own beside this one: in one process
// they would see each other's goroutines.
func TestConformance(t *testing.T) {
	t.Run("range", func(t *testing.T) {
		if os.Getenv("KAFKABROKER_SUITE") != "" {
			brokertest.Run(t, harness("range", testLease, fakeSystem))
			return
		}
		wait := runAside(t, "KAFKABROKER_SUITE=range")
		t.Parallel() // goes on when the other one is through
		wait()
	})
	t.Run("sticky", func(t *testing.T) { brokertest.Run(t, harness("sticky", testLease, fakeSystem)) })
}

// runAside runs this very test in another process, with the same cases of it. wait takes over what it says.
func runAside(t *testing.T, env string) (wait func()) {
	t.Helper()
	run := "^TestConformance$/^range$"
	if asked := strings.SplitN(flag.Lookup("test.run").Value.String(), "/", 3); len(asked) == 3 {
		run += "/" + asked[2]
	}
	var out bytes.Buffer
	c := exec.Command(os.Args[0], "-test.run="+run, "-test.v", "-test.timeout=15m")
	c.Env = append(os.Environ(), env)
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return func() {
		t.Helper()
		if err := c.Wait(); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		} else {
			t.Log(out.String())
		}
	}
}

// TestConformanceReal runs it on a real Kafka.
func TestConformanceReal(t *testing.T) {
	lease := realLease(t)
	for _, balancer := range []string{"sticky", "range"} {
		t.Run(balancer, func(t *testing.T) { brokertest.Run(t, harness(balancer, lease, realSystem)) })
	}
}
