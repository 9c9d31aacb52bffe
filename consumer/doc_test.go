package consumer

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocNamesEachFile: the package comment says what is in which file, of each file that there is, and of no other.
func TestDocNamesEachFile(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, parts, ok := strings.Cut(string(doc), "# The parts")
	if !ok {
		t.Fatal("doc.go has no list of the parts")
	}
	named := regexp.MustCompile(`\b[a-z]+\.go\b`).FindAllString(parts, -1)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if n := strings.Count(" "+strings.Join(named, " ")+" ", " "+f+" "); n != 1 && !strings.HasSuffix(f, "_test.go") && f != "doc.go" {
			t.Errorf("doc.go names %s %d times, want once", f, n)
		}
	}
	for _, f := range named {
		if !slices.Contains(files, f) {
			t.Errorf("doc.go names %s, which is not there", f)
		}
	}
}
