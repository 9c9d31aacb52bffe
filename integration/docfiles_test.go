package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocNamesEachFile: the package comments that say what is in which file do so for each file that there is, and for no other.
func TestDocNamesEachFile(t *testing.T) {
	for dir, heading := range map[string]string{
		"../consumer": "# The parts", "../pool": "# The parts", "../program": "# The files",
		"../broker/kafkabroker": "# Where things are", "../broker/natsbroker": "# The parts",
		"../broker/membroker": "# Where things are", "../broker/brokertest": "# Where things are",
		"../deadletters": "# Where things are", "../handlers": "# Where things are", "../consumer/admin/page": "# Where things are",
		"sim": "# Where things are",
	} {
		_, parts, ok := strings.Cut(read(t, filepath.Join(dir, "doc.go")), heading)
		if !ok {
			t.Fatalf("%s/doc.go has no part %q", dir, heading)
		}
		parts, _, _ = strings.Cut(parts, "\n// # ")
		named := regexp.MustCompile(`\b[a-z_]+\.go\b`).FindAllString(parts, -1)
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var files []string
		for _, e := range entries {
			if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && name != "doc.go" {
				files = append(files, name)
			}
		}
		for _, f := range files {
			if n := strings.Count(" "+strings.Join(named, " ")+" ", " "+f+" "); n != 1 {
				t.Errorf("%s/doc.go names %s %d times, want once", dir, f, n)
			}
		}
		for _, f := range named {
			if !slices.Contains(files, f) {
				t.Errorf("%s/doc.go names %s, which is not there", dir, f)
			}
		}
	}
}
