package brokertest

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A reason under a name that is nobody's excuses nothing, so it is a mistake; each finding names its field.
func TestValidate(t *testing.T) {
	h := Harness{Cannot: map[string]string{"Stael": "misspelt", "Steal": "not here"}, Only: []string{"Order", "Odrer"}}
	err := h.validate()
	if err == nil {
		t.Fatal("a harness without New and Lease is valid")
	}
	for _, want := range []string{"New is nil", "Lease is not set", `Cannot["Stael"]`, "Only names Odrer"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("validate said %q, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "Steal") {
		t.Errorf("validate said %q, and Steal is right", err)
	}
}

// The text that a case in a bubble prints when its clock stands still names the case and the remedy.
func TestStandsStill(t *testing.T) {
	text := (&testCase{name: "ObserveCallsBack"}).standsStill()
	for _, want := range []string{"ObserveCallsBack", "lock held", "Bubble = false", (20 * time.Second).String()} {
		if !strings.Contains(text, want) {
			t.Errorf("it says %q, want %q in it", text, want)
		}
	}
}

// A shared queue has no partition that could go to another process: a case about that is skipped with this reason, though such a
// queue may be able to Steal a process's claim.
func TestCasesThatNeedPartitions(t *testing.T) {
	needs := []string{"Revoked", "RevokedInTime", "Stolen", "StoppedTakesNoClaim"}
	queue, log := &Harness{NoPartitions: true}, &Harness{}
	for _, c := range cases() {
		if !slices.Contains(needs, c.name) {
			continue
		}
		if why := c.why(queue); !strings.Contains(why, "Harness.NoPartitions") {
			t.Errorf("%s of a shared queue: skipped for %q, want Harness.NoPartitions", c.name, why)
		}
		if why := c.why(log); why != "" {
			t.Errorf("%s of a broker with partitions is skipped: %s", c.name, why)
		}
	}
}
