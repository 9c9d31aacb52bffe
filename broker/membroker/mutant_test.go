package membroker

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/brokertest"
)

// impatient waits less, of the bubble's time: what does not happen by then will not. SettleRacesEnd needs the most, some 3 s.
func impatient(c Config) brokertest.Harness {
	h := harness(c)
	h.Patience = 6 * time.Second
	return h
}

// TestMutantsFail proves that the conformance suite sees each of these mistakes, and by which cases.
func TestMutantsFail(t *testing.T) {
	partitioned, leased := Config{}, Config{Leased: true}
	for _, m := range []struct {
		name   string
		mutant mutant
		on     []Config
		by     string // the case that has to see it, run alone; empty: any
	}{
		{"commit then end", commitThenEnd, []Config{partitioned}, ""},
		{"budget freed at the end of a claim", freeAtEnd, []Config{partitioned}, ""},
		{"redelivery handed out while out", redeliverOut, []Config{partitioned, leased}, ""},
		{"finished messages known by sequence only", doneBySequence, []Config{partitioned, leased}, ""},
		{"pause keeps the prefetch", pauseKeepsPrefetch, []Config{partitioned, leased}, ""},
		{"delay of a give-back ignored", nackEarly, []Config{leased}, ""},
		{"lost settles not reported", lostSilently, []Config{partitioned, leased}, ""},
		{"second settle accepted", settleTwice, []Config{partitioned, leased}, ""},
		{"error together with messages", errorWithMessages, []Config{partitioned, leased}, ""},
		{"stop loses the buffer", stopLosesBuffer, []Config{partitioned, leased}, ""},
		{"gaps not reported", skipGapSilently, []Config{partitioned, leased}, ""},
		{"give-backs counted as runs", countGiveBacks, []Config{partitioned, leased}, ""},
		{"settled when handed out", ackBeforeSettle, []Config{partitioned, leased}, ""},
		{"leases not extended", noExtension, []Config{leased}, ""},
		{"bytes without a bound", bytesUnbounded, []Config{partitioned, leased}, ""},
		{"last commit forgotten at close", closeWithoutCommit, []Config{partitioned, leased}, ""},
		{"unknown lag is zero", lagZero, []Config{partitioned, leased}, ""},
		{"expired give-back sent", nackExpired, []Config{leased}, ""},
		{"handed out across claims", strayHandedOut, []Config{partitioned}, ""},
		{"an ack waits for the network", ackWaits, []Config{partitioned, leased}, "SettlesDoNotWait"},
		{"acks that did not hold not reported", neverUnconfirmed, []Config{partitioned, leased}, "UnconfirmedIsTold"},
		{"reported in advance", neverUnconfirmed | unconfirmedAtOpen, []Config{partitioned, leased}, "UnconfirmedIsTold"},
		{"late ack not sent", lateAckDropped, []Config{leased}, "LateAck"},
		{"second close does not wait", closeTwiceAtOnce, []Config{partitioned, leased}, "CloseWaits"},
		{"order not kept at stop", orderedIgnored, []Config{leased}, "StopInOrder"},
		{"order not kept at pause", orderedIgnored, []Config{leased}, "PauseInOrder"},
		{"order not kept across claims", orderedIgnored, []Config{partitioned}, "OrderAcrossClaims"},
		{"leases of the prefetch not extended", prefetchNotExtended, []Config{leased}, "PrefetchStays"},
		{"leases of unsent settles not extended", unsentNotExtended, []Config{leased}, "FailedForLong"},
		{"down without a reason", downWithoutErr, []Config{partitioned, leased}, "DownLater"},
		{"down told each second", downEachSecond, []Config{partitioned, leased}, "DownAgain"},
		{"down again not told", downForgotten, []Config{partitioned, leased}, "DownAgain"},
		{"smaller budget not used", shrinkIgnored, []Config{partitioned, leased}, "SetBudget"},
		{"lag of the wrong group", lagGroupWrong, []Config{partitioned, leased}, "LagOfTwo"},
		{"receive goes on after a kill", killKeepsReceiving, []Config{partitioned, leased}, "Killed"},
		{"commit then end at close", commitThenEndAtClose, []Config{partitioned, leased}, "SettleRacesClose"},
		{"unsaid at Close and not reported", neverUnconfirmed, []Config{partitioned, leased}, "CloseUnsaid"},
		{"bytes used up to the last one", usedUpForgotten, []Config{partitioned, leased}, "BytesUsedUp"},
		{"late settles free no budget", lateKeepsBudget, []Config{partitioned, leased}, "LateSettlesFree"},
		{"handed out beside Assigned", assignedLate, []Config{partitioned, leased}, "AssignedComesFirst"},
		{"settles of another source", foreignSettled, []Config{partitioned, leased}, "ForeignClaim"},
		{"given back and gone in silence", backGoneSilently, []Config{partitioned}, "TrimmedAndGivenBack"},
		{"short delay of a give-back ignored", nackEarly, []Config{{Leased: true, NativeDelay: testLease}}, "GiveBackDelay"},
		{"gap from nowhere", gapFromZero, []Config{partitioned, leased}, "TrimmedWhileAway"},
	} {
		for _, c := range m.on {
			t.Run(m.name+map[bool]string{false: "/partitioned", true: "/leased"}[c.Leased], func(t *testing.T) {
				testMutant = m.mutant
				defer func() { testMutant = 0 }()
				var only []string
				if m.by != "" {
					only = append(only, m.by)
				}
				var failed map[string][]string
				for try := 0; try < 3 && len(failed) == 0; try++ { // what some do wrong depends on who runs first
					failed = brokertest.Failures(t, impatient(c), only...)
				}
				if len(failed) == 0 {
					t.Errorf("the suite passes %v", only)
				}
				t.Logf("seen by %v", slices.Sorted(maps.Keys(failed)))
			})
		}
	}
}

// TestNoMutant proves that the same way of running finds nothing without a mistake.
func TestNoMutant(t *testing.T) {
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
