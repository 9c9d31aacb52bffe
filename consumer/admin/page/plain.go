package page

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// cut is at most so many bytes of a text, and whole characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// plain is a text of somebody else, at most so many bytes of it, as it may be shown on a line: what is not printed as itself
// (control characters, and those that turn the direction of what follows) is written as in Go, \u202e.
func plain(s string, most int) string { return escape(cut(s, most), "") }

// plainLines is plain for a text of several lines.
func plainLines(s string, most int) string { return escape(cut(s, most), "\n\t") }

func escape(s, keep string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case strconv.IsPrint(r), strings.ContainsRune(keep, r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// isText says whether bytes are shown as a text: UTF-8 without the zero byte.
func isText(b []byte) bool { return utf8.Valid(b) && strings.IndexByte(string(b), 0) < 0 }

// textOr is bytes on a line: a text, or hex.
func textOr(b []byte, most int) string {
	if isText(b) {
		return plain(string(b), most)
	}
	return "0x" + cut(hex.EncodeToString(b[:min(len(b), most)]), most)
}
