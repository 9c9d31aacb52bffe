package program

import (
	"slices"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/deadletters"
)

// TestDLQSummary: letters are counted by who gave them up, why, and where they came from, of all consumers of the file that have
// some, and those in one topic once.
func TestDLQSummary(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		file := readFile(t, "/", f.file)
		writeFile(t, "/", f.file, strings.Replace(file, "    routes: [{handler: log}]",
			"    dead_letter: {to: dead.orders}\n    routes: [{handler: log}]", 1))
		if out := f.must(t, "list", "--summary"); out != "0 letters, 0 waiting\n" {
			t.Errorf("of none: %q", out)
		}
		f.bury(t, "orders", "good", "b", "good", "d", "good")
		f.bury(t, "pay\x1b[2Jroll", "good")
		f.must(t, "replay", "--consumer", "orders", "--to", "other", f.place(0))
		rows := strings.Split(f.must(t, "list", "--summary"), "\n")
		for i := range rows {
			columns := strings.Fields(rows[i])
			if len(columns) == 8 && i > 0 {
				columns = slices.Delete(columns, 5, 7) // when, which is now
			}
			rows[i] = strings.Join(columns, " ")
		}
		want := []string{"HANDLER CLASS FROM LETTERS WAITING OLDEST NEWEST IN", "orders error orders 3 2 dead.orders",
			"orders timeout orders 2 2 dead.orders", `orders error pay\x1b[2Jroll 1 1 dead.orders`, "6 letters, 5 waiting", ""}
		if f.kafka && !slices.Equal(rows, want) {
			t.Errorf("%q", rows)
		}
		if !f.kafka && (len(rows) != len(want) || rows[1] != want[1] || rows[4] != want[4]) { // NATS has no such header
			t.Errorf("%q", rows)
		}
		if out := f.must(t, "list", "--summary", "--json", "--class", "timeout"); strings.Count(out, "\n") != 1 ||
			!strings.Contains(out, `"handler":"orders","class":"timeout","original_topic":"orders","letters":2,"waiting":2,`) {
			t.Errorf("as JSON: %s", out)
		}
		if out := f.must(t, "list", "--summary", "--handler", "orders"); !strings.Contains(out, "\n6 letters, 5 waiting\n") {
			t.Errorf("of who gave them up: %s", out)
		}
		if out := f.must(t, "list", "--summary", "--consumer", "other"); out != "0 letters, 0 waiting\n" {
			t.Errorf("of the other: %s", out)
		}
		for _, wrong := range []string{"--limit 3", f.place(0), "--consumer nobody", "--topic nothing"} {
			if out, err := f.dlq(t, append([]string{"list", "--summary"}, strings.Fields(wrong)...)...); err == nil {
				t.Errorf("%s: %s", wrong, out)
			}
		}
	})
}

// TestSummaryIsBounded: whoever may publish dead letters may give each of them a kind of its own.
func TestSummaryIsBounded(t *testing.T) {
	s := letterSummary{}
	for i := range 3 * maxKinds {
		l := &deadletters.Letter{Handler: strings.Repeat("x", i), State: deadletters.Waiting}
		l.LastFailure = l.LastFailure.AddDate(2000, 0, i)
		s.add("dead", l)
	}
	k := letterKind{"dead", otherKinds, "", ""}
	if len(s) != maxKinds+1 || s[k].letters != 2*maxKinds || s.kinds()[0] != k || !s[k].oldest.Before(s[k].newest) {
		t.Errorf("%d kinds, of others %+v", len(s), s[k])
	}
}
