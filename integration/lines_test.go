package integration

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// longestLine is what fits beside another file on a screen.
const longestLine = 130

// asIs is what cannot be broken: in Markdown rows of tables, commands and what they print, pictures; in Go what examples print.
var asIs = map[string]*regexp.Regexp{
	".md": regexp.MustCompile(`^(\||    |\{|!\[)`),
	".go": regexp.MustCompile(`^\t// Output: `),
}

// TestLinesFit: no line of Go or of Markdown is longer, but for what is generated and what cannot be broken. A tab is one column.
func TestLinesFit(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "testdata"):
			return fs.SkipDir
		case d.IsDir() || strings.HasSuffix(name, ".pb.go"):
			return nil
		case !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".md"):
			return nil
		}
		seen++
		for i, line := range strings.Split(read(t, path), "\n") {
			if n := utf8.RuneCountInString(line); n > longestLine && !asIs[filepath.Ext(path)].MatchString(line) {
				t.Errorf("%s:%d has %d columns, want at most %d", strings.TrimPrefix(path, "../"), i+1, n, longestLine)
			}
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Fatal(seen, err)
	}
}
