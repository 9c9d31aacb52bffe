package broker

import (
	"fmt"
	"slices"
	"strings"
)

// A Field is the path of a setting in a Config, by its names in Go: "Retry.MaxAttempts", "Brokers[0]".
type Field string

// A Finding is one thing that is wrong with a Config.
type Finding struct {
	// Field has the mistake. Empty: the Config as a whole.
	Field Field

	text, format string
	args         []any
}

// Problem says what is wrong with the Field, "is 4, below Pool.Min, 8". Other fields that it speaks of are called what name says,
// for those who have names of their own, as a configuration file does; nil: as in Go.
func (f *Finding) Problem(name func(Field) string) string {
	if name == nil {
		return f.text
	}
	args := slices.Clone(f.args)
	for i, a := range args {
		if field, ok := a.(Field); ok {
			args[i] = name(field)
		}
	}
	return fmt.Sprintf(f.format, args...)
}

// Error is the field and the problem.
func (f *Finding) Error() string { return strings.TrimSpace(string(f.Field) + " " + f.text) }

// Unwrap returns the errors that the problem speaks of.
func (f *Finding) Unwrap() (errs []error) {
	for _, a := range f.args {
		if err, ok := a.(error); ok {
			errs = append(errs, err)
		}
	}
	return errs
}

// Findings are all that is wrong with a Config, as an error. Get at them with errors.As, to say it in other words than Go's; the
// longshore program tells those of an adapter in its file's. The zero value has none. Not safe for concurrent use.
type Findings struct {
	// Of names the Config at the start of each line: "kafkabroker".
	Of string
	// List has them in the order in which they were found.
	List []*Finding
}

// Add adds a finding. A Field among args names another setting: write it with %v, and errors, too.
func (fs *Findings) Add(at Field, format string, args ...any) {
	fs.List = append(fs.List, &Finding{Field: at, text: fmt.Sprintf(format, args...), format: format, args: args})
}

// Check is Add where something is not ok.
func (fs *Findings) Check(ok bool, at Field, format string, args ...any) {
	if !ok {
		fs.Add(at, format, args...)
	}
}

// Err is fs as an error; nil where there is nothing wrong.
func (fs *Findings) Err() error {
	if len(fs.List) == 0 {
		return nil
	}
	return fs
}

// Error has a line for each: "kafkabroker: Group is missing".
func (fs *Findings) Error() string {
	lines := make([]string, len(fs.List))
	for i, f := range fs.List {
		lines[i] = f.Error()
		if fs.Of != "" {
			lines[i] = fs.Of + ": " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each, for errors.Is and errors.As.
func (fs *Findings) Unwrap() []error {
	errs := make([]error, len(fs.List))
	for i, f := range fs.List {
		errs[i] = f
	}
	return errs
}

// FindingsOf are the findings that an error has in it; nil: none.
func FindingsOf(err error) (all []*Finding) {
	switch err := err.(type) { //nolint:errorlint // it looks into each
	case nil:
	case *Finding:
		all = append(all, err)
	case interface{ Unwrap() error }:
		all = FindingsOf(err.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			all = append(all, FindingsOf(one)...)
		}
	}
	return all
}
