package program

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// escape makes a text of a message fit for a terminal: what is not printed as itself (control characters, with which a message
// could rewrite what is shown, and invisible ones) is shown as in Go, \x1b.
func escape(s string) string {
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// isText says whether bytes are shown as a text: UTF-8 without the zero byte.
func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// shown is bytes on one line: a text escaped, anything else in hex. At most so many bytes of it; 0: all.
func shown(b []byte, most int) string {
	tail := ""
	if most > 0 && len(b) > most {
		for b = b[:most]; len(b) > most-utf8.UTFMax && !utf8.Valid(b); { // not in the middle of a character
			b = b[:len(b)-1]
		}
		tail = "…"
	}
	if isText(b) {
		return escape(string(b)) + tail
	}
	return "0x" + hex.EncodeToString(b) + tail
}

// printPayload shows a payload: a text by its lines, escaped, anything else as a hex dump.
func printPayload(w io.Writer, b []byte) error {
	if !isText(b) {
		_, err := io.WriteString(w, hex.Dump(b))
		return err
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if _, err := fmt.Fprintln(w, strings.ReplaceAll(escape(line), `\\`, `\`)); err != nil {
			return err
		}
	}
	return nil
}

// writeJSON writes a value on one line. Characters that are not printed as themselves are escaped, also those that JSON would let
// pass.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	var safe []byte
	for _, r := range strings.TrimSuffix(b.String(), "\n") { // within strings only: everything else is ASCII
		switch {
		case r < utf8.RuneSelf && r != 0x7f, strconv.IsPrint(r):
			safe = utf8.AppendRune(safe, r)
		case r > 0xffff:
			r -= 0x10000
			safe = fmt.Appendf(safe, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			safe = fmt.Appendf(safe, `\u%04x`, r)
		}
	}
	_, err := w.Write(append(safe, '\n'))
	return err
}
