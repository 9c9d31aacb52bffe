package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Finding is one thing that is wrong with a file. It never shows a value that may be a secret.
type Finding struct {
	// Line counts from 1; 0: the file as a whole.
	Line int
	// Path is where: names joined by dots, positions in brackets. Empty: the file as a whole.
	Path string
	// Problem says what.
	Problem string
}

// Findings are all that is wrong with a file, as an error.
type Findings struct {
	File string
	List []Finding
}

// onOneLine writes the line breaks of names, which the file chooses, as in Go: a finding is one line, and none can be forged.
var onOneLine = strings.NewReplacer("\n", `\n`, "\r", `\r`)

// Error has a line for each: "file:line: path: problem".
func (f *Findings) Error() string {
	var b strings.Builder
	for i, one := range f.List {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(f.File)
		if one.Line > 0 {
			fmt.Fprintf(&b, ":%d", one.Line)
		}
		if one.Path != "" {
			b.WriteString(": " + onOneLine.Replace(one.Path))
		}
		b.WriteString(": " + onOneLine.Replace(one.Problem))
	}
	return b.String()
}

// A report is where a file says what, and what is wrong with it.
type report struct {
	// Name is the file's name, for messages.
	Name string
	// Warnings are what is not wrong and should be known.
	Warnings []Finding

	lines    map[string]int // by path
	findings []Finding
	covered  map[string]bool // paths at or above a finding
	unread   map[string]bool // paths of mappings of which a part was not read, so that nobody knows what is missing there
	inQuotes map[string]bool // paths of what was filled in from the environment in quotes
	here     map[string]bool // paths of findings that are of the place where the file is read, and not of the file
}

// A place is a section of the file: keys are those below it.
type place struct {
	*report
	at string
}

func (p place) find(key, format string, args ...any) { p.Find(p.at+key, format, args...) }

func (p place) has(key string) bool { return p.Has(p.at + key) }

// Find adds a finding at a path, unless there is one for the same path or below it already: what could not be understood is not
// also missing.
func (r *report) Find(path, format string, args ...any) {
	if !r.covered[path] && !r.mayBeThere(path) {
		r.add(path, fmt.Sprintf(format, args...))
	}
}

// mayBeThere says whether what was not read may have a path that nothing was read of.
func (r *report) mayBeThere(path string) bool {
	for !r.Has(path) && path != "" {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
		if r.unread[path] {
			return true
		}
	}
	return false
}

// cover takes note of a finding's path, and of those above it. A file may have very many mistakes: none is compared with the
// others.
func (r *report) cover(path string) {
	for !r.covered[path] {
		r.covered[path] = true
		i := strings.LastIndexAny(path, ".[")
		if i <= 0 { // a finding of the file as a whole is another than those of what is in it
			return
		}
		path = path[:i]
	}
}

// add adds a finding in any case.
func (r *report) add(path, problem string) {
	r.addAt(r.line(path), path, problem)
}

// addAt is add for what stands in another line than its path.
func (r *report) addAt(line int, path, problem string) {
	r.cover(path)
	r.findings = append(r.findings, Finding{line, path, problem})
}

// Warn adds what is not wrong and should be known.
func (d *Document) Warn(path, format string, args ...any) { d.warn(path, format, args...) }

func (r *report) warn(path, format string, args ...any) {
	r.Warnings = append(r.Warnings, Finding{r.line(path), path, fmt.Sprintf(format, args...)})
}

// line is where a path stands in the file, or what it would stand in.
func (r *report) line(path string) int {
	for {
		if n, ok := r.lines[path]; ok {
			return n
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return 0
		}
		path = path[:i]
	}
}

// Has says whether the file says anything at a path.
func (r *report) Has(path string) bool { _, ok := r.lines[path]; return ok }

// addHere adds a finding that another place where the file is read may not have.
func (r *report) addHere(path, problem string) {
	r.here[path] = true
	r.add(path, problem)
}

// Err is everything that was found, in the order of the file, as *Findings; nil: nothing.
func (r *report) Err() error { return errOf(r.Name, r.findings) }

// ErrOf is Err for who needs a part of the file only: a variable that is not set here, or a secret's file that is not, is no
// finding where needs does not take its path. What is wrong with the file itself is.
func (r *report) ErrOf(needs func(path string) bool) error {
	unneeded := func(f Finding) bool { return r.here[f.Path] && !needs(f.Path) }
	return errOf(r.Name, slices.DeleteFunc(slices.Clone(r.findings), unneeded))
}

func errOf(name string, findings []Finding) error {
	if len(findings) == 0 {
		return nil
	}
	list := slices.Clone(findings)
	slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	return &Findings{name, list}
}
