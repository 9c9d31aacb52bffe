package program

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// A visible is the one way by which commands write to a terminal, or to what may be shown on one later: what comes through is
// printed as itself, or escaped. So no error of a broker, no host name and no message can move the cursor, set the title or hide
// a line, whoever forgot to think of it. Characters are escaped as in JSON, \u009b, which leaves JSON what it is.
type visible struct {
	out    io.Writer
	failed *error // the first that out returned; nil: nobody asks
}

// Write writes p with everything escaped that is not printed as itself, but for ends of lines and tabs.
func (v visible) Write(p []byte) (int, error) {
	if _, err := v.out.Write(makeVisible(p)); err != nil {
		if v.failed != nil && *v.failed == nil {
			*v.failed = err
		}
		return 0, err
	}
	return len(p), nil
}

// raw is the writer behind a visible one: for a picture that moves the cursor itself, of texts that are ours, and for the program
// that edits a payload.
func raw(w io.Writer) io.Writer {
	if v, ok := w.(visible); ok {
		return v.out
	}
	return w
}

func makeVisible(p []byte) []byte {
	var safe []byte // nil: nothing was escaped so far
	for i := 0; i < len(p); {
		r, n := utf8.DecodeRune(p[i:])
		odd := r == utf8.RuneError && n == 1 || r != '\n' && r != '\t' && !strconv.IsPrint(r)
		if odd && safe == nil {
			safe = append(make([]byte, 0, len(p)+16), p[:i]...)
		}
		switch {
		case odd:
			safe = appendEscaped(safe, r, p[i])
		case safe != nil:
			safe = append(safe, p[i:i+n]...)
		}
		i += n
	}
	if safe == nil {
		return p
	}
	return safe
}

// appendEscaped writes a character as JSON does, and a byte that is none as \x9b.
func appendEscaped(to []byte, r rune, b byte) []byte {
	switch {
	case r == utf8.RuneError:
		return fmt.Appendf(to, `\x%02x`, b)
	case r > 0xffff:
		r -= 0x10000
		return fmt.Appendf(to, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	return fmt.Appendf(to, `\u%04x`, r)
}

// visibleEvent makes the texts of a log event visible before they are shown to people: they were decoded.
func visibleEvent(e map[string]any) error {
	for _, k := range slices.Collect(maps.Keys(e)) {
		v := visibleValue(e[k])
		delete(e, k)
		e[string(makeVisible([]byte(k)))] = v
	}
	return nil
}

func visibleValue(v any) any {
	switch v := v.(type) {
	case string:
		return string(makeVisible([]byte(v)))
	case []any:
		for i := range v {
			v[i] = visibleValue(v[i])
		}
	case map[string]any:
		_ = visibleEvent(v)
	}
	return v
}
