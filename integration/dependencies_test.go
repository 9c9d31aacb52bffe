package integration

import (
	"regexp"
	"strings"
	"testing"
)

// TestDependenciesAreExplained: docs/dependencies.md says of every module that our code imports why it is this one, and names
// none that is gone.
func TestDependenciesAreExplained(t *testing.T) {
	used := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z]\S*/\S+(, \S+)*) \|`).FindAllStringSubmatch(read(t,
		"../docs/dependencies.md"), -1) {
		for m := range strings.SplitSeq(row[1], ", ") {
			used[m] = false
		}
	}
	for _, p := range packages(t) {
		for _, imp := range append(append(p.Imports, p.TestImports...), p.XTestImports...) {
			if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") || strings.HasPrefix(imp, module) {
				continue
			}
			explained := false
			for m := range used {
				if imp == m || strings.HasPrefix(imp, m+"/") {
					used[m], explained = true, true
				}
			}
			if !explained {
				t.Errorf("%s imports %s, and docs/dependencies.md does not say why", p.ImportPath, imp)
			}
		}
	}
	for m, is := range used {
		if !is {
			t.Errorf("docs/dependencies.md explains %s, which nothing imports", m)
		}
	}
}
