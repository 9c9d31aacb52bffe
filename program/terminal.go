package program

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

func isTerminal(w io.Writer) bool {
	f, ok := raw(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// columns is how wide a terminal is now; what is no terminal has no end.
func columns(w io.Writer) int {
	if f, ok := raw(w).(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return math.MaxInt
}

// fold puts parts side by side, as many on a line as fit: a line ends between two of them, and never within a figure. A part that
// is wider than a line has one of its own.
func fold(columns int, separator string, parts ...string) []string {
	lines, width := []string{""}, 0
	for i, p := range parts {
		n := utf8.RuneCountInString(p)
		switch {
		case i == 0:
		case width+utf8.RuneCountInString(separator)+n > columns:
			lines[len(lines)-1] += strings.TrimRight(separator, " ")
			lines, width = append(lines, ""), 0
		default:
			lines[len(lines)-1] += separator
			width += utf8.RuneCountInString(separator)
		}
		lines[len(lines)-1] += p
		width += n
	}
	return lines
}

// printSummary prints the figures that a command ends with: one line, or on a terminal as many as they need.
func printSummary(w io.Writer, figures ...string) error {
	_, err := fmt.Fprintln(w, strings.Join(fold(columns(w), ", ", figures...), "\n"))
	return err
}

// cut is at most so many characters of a text.
func cut(text string, columns int) string {
	if utf8.RuneCountInString(text) <= columns {
		return text
	}
	return string([]rune(text)[:max(0, columns-1)]) + "…"
}
