//go:build unix

package integration

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFaultsIndex: faults.md and the code name the same rows and tests.
func TestFaultsIndex(t *testing.T) {
	listed, run := listedProofs(t), provenFaults()
	for proof := range run {
		if !listed[proof] {
			t.Errorf("faults.md does not list %s", proof)
		}
	}
	for proof := range listed {
		if !run[proof] {
			t.Errorf("faults.md says %s; there is no such row", proof)
		}
	}
	code := read(t, "kill_test.go") + read(t, "faults_test.go") + read(t, "inorder_test.go")
	for proof := range run {
		name := regexp.MustCompile(`Test\w+`).FindString(proof)
		if !strings.Contains(code, "func "+name+"(") {
			t.Errorf("%s: there is no such test", proof)
		}
	}
}

// TestFaultsElsewhere: the tests of other packages that faults.md names exist, and of those faults that concern Kafka none is
// left out.
func TestFaultsElsewhere(t *testing.T) {
	table := read(t, "faults.md")
	elsewhere := regexp.MustCompile(`(?m)^\| (f\d\d) \| \w+ \|.*\| (kafkabroker|consumer) (Test\w+).*\|$`)
	for _, m := range elsewhere.FindAllStringSubmatch(table, -1) {
		dir := map[string]string{"kafkabroker": "../broker/kafkabroker", "consumer": "../consumer"}[m[2]]
		mustHaveTest(t, m[1], dir, m[3])
	}
	for n := 1; n <= 41; n++ {
		id := fmt.Sprintf("f%02d", n)
		if slices.Contains([]string{"f02", "f08", "f10", "f17", "f32", "f33", "f34", "f35", "f36"}, id) {
			continue // of NATS alone
		}
		if !regexp.MustCompile(`(?m)^\| ` + id + ` \| (kafka|both) \|`).MatchString(table) {
			t.Errorf("faults.md has nothing on %s and Kafka", id)
		}
	}
}

// TestBadInputsIndex: the tests that faults.md names for bad inputs exist.
func TestBadInputsIndex(t *testing.T) {
	dirs := map[string]string{"consumer": "../consumer", "handlers": "../handlers", "kafkabroker": "../broker/kafkabroker",
		"natsbroker": "../broker/natsbroker",
		"config":     "../program/internal/config"}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (b\d\d) \|.*\| (\w+) (Test\w+) \|$`).FindAllStringSubmatch(read(t, "faults.md"),
		-1) {
		listed[m[1]] = true
		mustHaveTest(t, m[1], dirs[m[2]], m[3])
	}
	for _, id := range []string{"b07", "b10", "b11", "b17", "b18", "b24", "b25"} {
		if !listed[id] {
			t.Errorf("faults.md has nothing on %s", id)
		}
	}
}

// mustHaveTest fails where a folder has no test of that name.
func mustHaveTest(t *testing.T, id, dir, test string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	there := func(file string) bool { return strings.Contains(read(t, file), "func "+test+"(") }
	if !slices.ContainsFunc(files, there) {
		t.Errorf("faults.md says that %s is proved by %s in %s; there is no such test", id, test, dir)
	}
}

// listedProofs is what faults.md says: "f03 on nats by TestFaults/f03".
func listedProofs(t *testing.T) map[string]bool {
	t.Helper()
	proofs := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (f\d\d) \| (\w+) \|.*\| (Test[\w/]+) \|$`).FindAllStringSubmatch(read(t,
		"faults.md"), -1) {
		for _, k := range kinds {
			if m[2] == k.name || m[2] == "both" {
				proofs[m[1]+" on "+k.name+" by "+m[3]] = true
			}
		}
	}
	return proofs
}

// provenFaults is what the code does.
func provenFaults() map[string]bool {
	proofs := map[string]bool{}
	for _, k := range kinds {
		prove := func(id, test string) { proofs[id+" on "+k.name+" by "+test] = true }
		for _, f := range faults {
			if !f.concerns(k) {
				continue
			}
			prove(f.id, "TestFaults/"+f.id)
			if slices.Contains(orderedFaults, f.id) {
				prove(f.id, "TestFaultsInOrder/"+f.id)
			}
		}
		for _, d := range k.products {
			prove(k.sigkill, "TestKillConsumers/"+string(d))
			prove(k.sigkill, "TestKillInOrder/"+string(d))
			prove("f04", "TestTerminateConsumers/"+string(d))
		}
		prove(k.serverKill, "TestKillServer")
		prove("f11", "TestKillBoth")
		prove("f11", "TestKillServerInOrder")
	}
	return proofs
}
