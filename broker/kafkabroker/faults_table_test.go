package kafkabroker

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestFaultsTable: the tests that faults.md names exist.
func TestFaultsTable(t *testing.T) {
	table, err := os.ReadFile("faults.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(b)
	}
	names := regexp.MustCompile(`\b(?:Test|Fuzz)[\w/]+`).FindAllString(string(table), -1)
	if len(names) < 40 {
		t.Fatalf("faults.md names %d tests: the expression is wrong", len(names))
	}
	for _, name := range names {
		parts := strings.Split(name, "/")
		if !strings.Contains(code.String(), "func "+parts[0]+"(") {
			t.Errorf("faults.md names %s, which does not exist", name)
		}
		if parts[0] == "TestConformance" && !slices.Contains(brokertest.Cases(), parts[2]) {
			t.Errorf("faults.md names %s, which the suite does not have", name)
		}
	}
}
