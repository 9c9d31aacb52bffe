package brokertest

import (
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
