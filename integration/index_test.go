//go:build unix

package integration

import (
	"regexp"
	"testing"
)

// TestFaultsIndex: faults.md and the code name the same rows and tests.
func TestFaultsIndex(t *testing.T) {
	code := read(t, "kill_test.go")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (f\d\d) \|.*\| (Test\w+)(/f\d\d)? \|$`).FindAllStringSubmatch(read(t, "faults.md"), -1) {
		id, test, row := m[1], m[2], m[3]
		listed[id] = true
		switch {
		case row == "" && !regexp.MustCompile(`func `+test+`\(`).MatchString(code):
			t.Errorf("faults.md says that %s proves %s; there is no such test", test, id)
		case row != "" && (row != "/"+id || !isRow(id)):
			t.Errorf("faults.md says that %s%s proves %s; there is no such row", test, row, id)
		}
	}
	for _, f := range faults {
		if !listed[f.id] {
			t.Errorf("faults.md does not list %s, %s", f.id, f.what)
		}
	}
	for _, id := range []string{"f02", "f04", "f10"} {
		if !listed[id] {
			t.Errorf("faults.md does not list %s", id)
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
