package membroker

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestMutantsFail proves that the conformance suite sees each of these mistakes, and by which cases.
func TestMutantsFail(t *testing.T) {
	partitioned, leased := Config{}, Config{Leased: true}
	for _, m := range []struct {
		name   string
		mutant mutant
		on     []Config
	}{
		{"commit then end", commitThenEnd, []Config{partitioned}},
		{"budget freed at the end of a claim", freeAtEnd, []Config{partitioned}},
		{"redelivery handed out while out", redeliverOut, []Config{partitioned, leased}},
		{"finished messages known by sequence only", doneBySequence, []Config{partitioned, leased}},
		{"pause keeps the prefetch", pauseKeepsPrefetch, []Config{partitioned, leased}},
		{"delay of a give-back ignored", nackEarly, []Config{leased}},
		{"lost settles not reported", lostSilently, []Config{partitioned, leased}},
		{"second settle accepted", settleTwice, []Config{partitioned, leased}},
		{"error together with messages", errorWithMessages, []Config{partitioned, leased}},
		{"stop loses the buffer", stopLosesBuffer, []Config{partitioned, leased}},
		{"gaps not reported", skipGapSilently, []Config{partitioned, leased}},
		{"give-backs counted as runs", countGiveBacks, []Config{partitioned, leased}},
		{"settled when handed out", ackBeforeSettle, []Config{partitioned, leased}},
		{"leases not extended", noExtension, []Config{leased}},
		{"bytes without a bound", bytesUnbounded, []Config{partitioned, leased}},
		{"last commit forgotten at close", closeWithoutCommit, []Config{partitioned, leased}},
		{"unknown lag is zero", lagZero, []Config{partitioned, leased}},
		{"expired give-back sent", nackExpired, []Config{leased}},
		{"handed out across claims", strayHandedOut, []Config{partitioned}},
	} {
		for _, c := range m.on {
			t.Run(m.name+map[bool]string{false: "/partitioned", true: "/leased"}[c.Leased], func(t *testing.T) {
				testMutant = m.mutant
				defer func() { testMutant = 0 }()
				h := harness(c)
				h.Patience = 2 * time.Second // of the bubble's time: what does not happen by then will not
				failed := brokertest.Failures(t, h)
				if len(failed) == 0 {
					t.Error("the suite passes")
				}
				t.Logf("seen by %v", slices.Sorted(maps.Keys(failed)))
			})
		}
	}
}

// TestNoMutant proves that the same way of running finds nothing without a mistake.
func TestNoMutant(t *testing.T) {
	for _, c := range []Config{{}, {Leased: true}} {
		if failed := brokertest.Failures(t, harness(c)); len(failed) > 0 {
			t.Errorf("leased: %v: %v", c.Leased, failed)
		}
	}
}
