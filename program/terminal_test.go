package program

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestPictureFits: on a terminal of any width no line of the demo's picture is wider, and no figure is broken.
func TestPictureFits(t *testing.T) {
	for columns := 16; columns < 140; columns++ {
		rows := [][]string{
			{"longshore demo", " 17.3 s", "load: silence"},
			{"workers     128", "busy  128", bar(100, 128, columns-30)},
			{"in flight  4096", "lag   49152"},
			{"handled      6000/s", "p50 5.1 ms", "p99 181.0 ms"},
		}
		lines := picture(columns, rows, "decision   64 → 128: work waits and nobody is idle")
		text := strings.Join(lines, "\n")
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > columns {
				t.Errorf("%d columns: a line has %d: %q", columns, n, line)
			}
		}
		for _, whole := range []string{"in flight  4096", "lag   49152", "busy  128", "p50 5.1 ms", "p99 181.0 ms", "17.3 s", "128:",
			"nobody"} {
			if !strings.Contains(text, whole) {
				t.Errorf("%d columns: %q is broken:\n%s", columns, whole, text)
			}
		}
	}
	if got := picture(80, [][]string{{"workers   1", "busy 0", bar(1, 128, 50)}},
		"decision   ")[0]; got != "workers   1   busy 0   "+strings.Repeat("·", 32) {
		t.Errorf("80 columns: %q", got)
	}
}

func TestFold(t *testing.T) {
	parts := []string{"sent 50000", "confirmed 50000", "5000000 bytes", "in 2.8 s", "17576/s"}
	for columns, want := range map[int]string{
		100: "sent 50000, confirmed 50000, 5000000 bytes, in 2.8 s, 17576/s",
		60:  "sent 50000, confirmed 50000, 5000000 bytes, in 2.8 s,\n17576/s",
		30:  "sent 50000, confirmed 50000,\n5000000 bytes, in 2.8 s,\n17576/s",
		5:   "sent 50000,\nconfirmed 50000,\n5000000 bytes,\nin 2.8 s,\n17576/s",
	} {
		if got := strings.Join(fold(columns, ", ", parts...), "\n"); got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", columns, got, want)
		}
	}
}
