package program

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

func TestShown(t *testing.T) {
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"plain é 世", 0, "plain é 世"},
		{"\x1b[2J\x07\u009b1m\u202e\u2066\r", 0, `\x1b[2J\a\u009b1m\u202e\u2066\r`},
		{`"quoted" \ back`, 0, `"quoted" \\ back`},
		{"\xff\x00", 0, "0xff00"},
		{"nul\x00", 0, "0x6e756c00"},
		{"世界世界", 4, "世…"},
		{"abc", 3, "abc"},
		{"", 0, ""},
	} {
		if got := shown([]byte(c.in), c.most); got != c.want {
			t.Errorf("%q: %s, want %s", c.in, got, c.want)
		}
	}
}

// FuzzShown: nothing of a message reaches a terminal that is not printed as itself, however it is shown, and JSON stays what it
// was.
func FuzzShown(f *testing.F) {
	f.Add([]byte("plain\nlines\x1b]0;title\x07"))
	f.Add([]byte("\u009b31m\u202e\U000e0001\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		if err := printPayload(&out, b); err != nil {
			t.Fatal(err)
		}
		text, hexed := textOrHex(b)
		var line bytes.Buffer
		if err := writeJSON(&line, letterJSON{Value: text, ValueHex: hexed}); err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{strings.ReplaceAll(out.String(), "\n", ""), shown(b, 10), shown(b, 0),
			strings.TrimSuffix(line.String(), "\n")} {
			if i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%q is printed as %q", b, s)
			}
		}
		var back letterJSON
		if err := json.Unmarshal(line.Bytes(), &back); err != nil || text != nil && *back.Value != *text {
			t.Errorf("%q comes back from JSON as %+v (%v)", b, back, err)
		}
	})
}
