//go:build unix

package integration

import (
	"regexp"
	"slices"
	"testing"
)

// TestFaultsIndex: faults.md and the code name the same rows and tests.
func TestFaultsIndex(t *testing.T) {
	code := read(t, "kill_test.go")
	listed, proofs := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (f\d\d) \|.*\| (Test\w+)(?:/(\w+))? \|$`).FindAllStringSubmatch(read(t, "faults.md"), -1) {
		id, test, row := m[1], m[2], m[3]
		listed[id] = true
		proofs[id+" "+test+"/"+row] = true
		switch {
		case test != "TestFaults" && !regexp.MustCompile(`func `+test+`\(`).MatchString(code):
			t.Errorf("faults.md says that %s proves %s; there is no such test", test, id)
		case test == "TestFaults" && (row != id || !isRow(id)),
			test != "TestFaults" && row != "" && !slices.Contains(products, discipline(row)):
			t.Errorf("faults.md says that %s/%s proves %s; there is no such row", test, row, id)
		}
	}
	for _, f := range faults {
		if !listed[f.id] {
			t.Errorf("faults.md does not list %s, %s", f.id, f.what)
		}
	}
	want := []string{"f10 TestKillServer/"}
	for _, d := range products {
		want = append(want, "f02 TestKillConsumers/"+string(d), "f04 TestTerminateConsumers/"+string(d))
	}
	for _, proof := range want {
		if !proofs[proof] {
			t.Errorf("faults.md does not list %s", proof)
		}
	}
}

func isRow(id string) bool {
	for _, f := range faults {
		if f.id == id {
			return true
		}
	}
	return false
}
