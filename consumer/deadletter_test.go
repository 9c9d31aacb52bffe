package consumer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzHeaderText(f *testing.F) {
	f.Add("plain")
	f.Add("line\r\nInjected: yes")
	f.Add("\xff\xfe bad utf-8")
	f.Add(strings.Repeat("é", 1000))
	f.Fuzz(func(t *testing.T, s string) {
		got := headerText(s, maxErrorBytes)
		if len(got) > maxErrorBytes || !utf8.ValidString(got) || strings.ContainsAny(got, "\r\n\x00\x1b") {
			t.Errorf("headerText(%q) = %q", s, got)
		}
	})
}
