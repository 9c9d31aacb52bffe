package config

import (
	"cmp"
	"fmt"
	"os"
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
			b.WriteString(": " + one.Path)
		}
		b.WriteString(": " + one.Problem)
	}
	return b.String()
}

// A Document is a file that was read: what it says, where it says it, and what is wrong with it.
type Document struct {
	// Name is the file's name, for messages.
	Name string
	// File is what it says, as far as it could be understood.
	File File
	// Warnings are what is not wrong and should be known.
	Warnings []Finding
	// Exports: spans or metrics are sent somewhere, and the last ones take time at a stop.
	Exports bool

	adapters []string // from outside
	lines    map[string]int
	findings []Finding
	mode     os.FileMode     // of the file; 0: not known
	filled   map[string]bool // what came from the environment, by path
}

// Find adds a finding at a path, unless there is one for the same path or below it already: what could not be understood is not
// also missing.
func (d *Document) Find(path, format string, args ...any) {
	below := func(f Finding) bool {
		rest, ok := strings.CutPrefix(f.Path, path)
		return ok && (rest == "" || path != "" && strings.ContainsRune(".[", rune(rest[0])))
	}
	if !slices.ContainsFunc(d.findings, below) {
		d.add(path, fmt.Sprintf(format, args...))
	}
}

// add adds a finding in any case.
func (d *Document) add(path, problem string) {
	d.findings = append(d.findings, Finding{d.line(path), path, problem})
}

func (d *Document) warn(path, format string, args ...any) {
	d.Warnings = append(d.Warnings, Finding{d.line(path), path, fmt.Sprintf(format, args...)})
}

// line is where a path stands in the file, or what it would stand in.
func (d *Document) line(path string) int {
	for {
		if n, ok := d.lines[path]; ok {
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
func (d *Document) Has(path string) bool { _, ok := d.lines[path]; return ok }

// Err is everything that was found, in the order of the file, as *Findings; nil: nothing.
func (d *Document) Err() error {
	if len(d.findings) == 0 {
		return nil
	}
	list := slices.Clone(d.findings)
	slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	return &Findings{d.Name, list}
}
