package membroker

import (
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// impatient waits less, of the bubble's time: what does not happen by then will not.
func impatient(c Config) brokertest.Harness {
	h := harness(c)
	h.Patience = 6 * time.Second
	return h
}

// TestFailuresFindNothing: brokertest.Failures, which runs the suite in another way than Run, finds nothing where nothing is
// wrong. That the suite sees mistakes is proved by TestMutantsOfSuite in integration.
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

// A joiner changes each process that joins.
type joiner func(change func(*brokertest.Process))

// idle lists the functions of a harness, each with what makes it do nothing, and a case that has to see that. Where the suite
// itself names the function, named is set.
var idle = []struct {
	name  string
	by    string
	named bool
	spoil func(sys *brokertest.System, join joiner)
}{
	{"Redeliver", "HarnessRedelivers", true, func(s *brokertest.System, _ joiner) {
		s.Redeliver = func(testing.TB, *broker.Message) {}
	}},
	{"ForgetSettles", "HarnessForgets", true, func(s *brokertest.System, _ joiner) {
		s.ForgetSettles = func(testing.TB) {}
	}},
	{"FailSettles", "HarnessFails", true, func(s *brokertest.System, _ joiner) {
		s.FailSettles = func(testing.TB, int) {}
	}},
	{"SlowSettles", "HarnessSlows", true, func(s *brokertest.System, _ joiner) {
		s.SlowSettles = func(testing.TB, time.Duration) {}
	}},
	{"Pulls", "HarnessCounts", true, func(s *brokertest.System, _ joiner) {
		s.Pulls = func(testing.TB) int64 { return 0 }
	}},
	{"Floors", "HarnessCounts", true, func(s *brokertest.System, _ joiner) {
		s.Floors = func(testing.TB) map[string][]int64 { return nil }
	}},
	{"Cut", "HarnessCuts", true, func(_ *brokertest.System, join joiner) {
		join(func(p *brokertest.Process) { p.Cut = func(brokertest.Direction) {} })
	}},
	{"EndReceive", "ReceiveFails", true, func(_ *brokertest.System, join joiner) {
		join(func(p *brokertest.Process) { p.EndReceive = func() {} })
	}},
	{"Heartbeats", "HeartbeatsGoOn", false, func(s *brokertest.System, _ joiner) {
		s.Heartbeats = func(testing.TB) int64 { return 0 }
	}},
	{"Down", "DownLater", false, func(s *brokertest.System, _ joiner) { s.Down = func(testing.TB) {} }},
	{"Up", "DownLater", false, func(s *brokertest.System, _ joiner) { s.Up = func(testing.TB) {} }},
	{"Revoke", "Revoked", false, func(s *brokertest.System, _ joiner) { s.Revoke = func(testing.TB, *broker.Claim) {} }},
	{"Steal", "Stolen", false, func(s *brokertest.System, _ joiner) { s.Steal = func(testing.TB, *broker.Claim) {} }},
	{"Bounce", "Bounced", false, func(s *brokertest.System, _ joiner) { s.Bounce = func(testing.TB, *broker.Claim) {} }},
	{"Trim", "TrimmedWhileAway", false, func(s *brokertest.System, _ joiner) { s.Trim = func(testing.TB, string, int) {} }},
	{"Recreate", "Recreated", false, func(s *brokertest.System, _ joiner) { s.Recreate = func(testing.TB, string) {} }},
	{"Kill", "Killed", false, func(_ *brokertest.System, join joiner) {
		join(func(p *brokertest.Process) { p.Kill = func() {} })
	}},
	{"Freeze", "Frozen", false, func(_ *brokertest.System, join joiner) {
		join(func(p *brokertest.Process) { p.Freeze = func() {} })
	}},
	{"Heal", "HarnessCuts", false, func(_ *brokertest.System, join joiner) {
		join(func(p *brokertest.Process) { p.Heal = func() {} })
	}},
}

// TestIdleHarness proves that the suite sees a harness one of whose functions does nothing, and names those that no case would
// miss.
func TestIdleHarness(t *testing.T) {
	for _, c := range []Config{{}, {Leased: true}} {
		for _, f := range idle {
			h := impatient(c)
			if h.Cannot[f.name] != "" || f.by == "HarnessRedelivers" && !h.NoPartitions {
				continue
			}
			made := h.New
			h.New = func(t testing.TB, s brokertest.Setup) *brokertest.System {
				sys := made(t, s)
				f.spoil(sys, func(spoil func(*brokertest.Process)) {
					join := sys.Join
					sys.Join = func(t testing.TB) *brokertest.Process {
						p := join(t)
						spoil(p)
						return p
					}
				})
				return sys
			}
			said := strings.Join(brokertest.Failures(t, h, f.by)[f.by], "\n")
			if said == "" || f.named && !strings.Contains(said, f.name+" has no effect") {
				t.Errorf("leased %v: of a %s that does nothing the suite said %q", c.Leased, f.name, said)
			}
		}
	}
}
