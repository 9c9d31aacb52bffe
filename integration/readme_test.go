package integration

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReadmeProgram: the program on README's first screen is the one that is compiled and run as Example.
func TestReadmeProgram(t *testing.T) {
	readme := read(t, "../README.md")
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(readme)
	if block == nil {
		t.Fatal("README has no Go program")
	}
	program := read(t, "example_test.go")
	program = strings.Replace(program, "package integration_test", "package main", 1)
	program = strings.Replace(program, "func Example() {", "func main() {", 1)
	program = regexp.MustCompile(`\n\t// Output: .*`).ReplaceAllString(program, "")
	if block[1] != program {
		t.Errorf("README's program is not integration/example_test.go. README has:\n%s\nthe example, as a program, is:\n%s", block[1],
			program)
	}
}

// TestReadmeCommands: what README tells a user to type exists. The commands on its first screen are run by .ci/run.
func TestReadmeCommands(t *testing.T) {
	readme := read(t, "../README.md")
	first := readme[:strings.Index(readme, "```go")]
	for _, command := range []string{"    go run ./cmd/longshore demo\n", "    go test ./...\n"} {
		if !strings.Contains(first, command) {
			t.Errorf("README's first screen does not name %q", strings.TrimSpace(command))
		}
	}
	makefile := read(t, "../Makefile")
	for _, m := range regexp.MustCompile("`make ([a-z ]+)`").FindAllStringSubmatch(readme, -1) {
		for _, target := range strings.Fields(m[1]) {
			if !strings.Contains(makefile, "\n"+target+": ##") {
				t.Errorf("README says make %s, and the Makefile has no such documented target", target)
			}
		}
	}
	for _, m := range regexp.MustCompile(`go run (\./\S+)|go doc (\./\S+)`).FindAllStringSubmatch(readme, -1) {
		path := strings.TrimRight(m[1]+m[2], "`,.")
		cmd := exec.Command("go", "list", path)
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("README names %s: %s", path, out)
		}
	}
}

// TestLinksOfDocs: what our pages link to inside the repository exists, page and heading.
func TestLinksOfDocs(t *testing.T) {
	pages, err := exec.Command("git", "-C", "..", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Skipf("no git work tree: %v", err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	anchored := 0
	for _, page := range strings.Fields(string(pages)) {
		for _, m := range link.FindAllStringSubmatch(read(t, "../"+page), -1) {
			to, anchor := path.Join("..", path.Dir(page), m[1]), m[2]
			if m[1] == "" {
				to = path.Join("..", page)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			if anchor == "" || path.Ext(to) != ".md" {
				continue
			}
			if anchored++; !slices.Contains(headings(read(t, to)), anchor) {
				t.Errorf("%s links to %s#%s, and there is no such heading", page, m[1], anchor)
			}
		}
	}
	if anchored < 50 {
		t.Errorf("%d links to headings were found", anchored)
	}
}

// headings are the names by which the forge links to the headings of a page.
func headings(page string) (names []string) {
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if title := strings.TrimLeft(line, "#"); !code && strings.HasPrefix(line, "#") && strings.HasPrefix(title, " ") {
			name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			names = append(names, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
