package program

import (
	"strings"
	"testing"
)

// TestDLQKeepsToItsConsumer: where several consumers of a file have their dead letters in one topic, a command sees those of the
// consumer that it was given. A purge deleted the others' as well, and a replay to the handler had them handled by routes that
// were not theirs.
func TestDLQKeepsToItsConsumer(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", "good", "good")
		file := readFile(t, "/", f.file)
		writeFile(t, "/", f.file, strings.Replace(file, "    routes: [{handler: log}]",
			"    dead_letter: {to: dead.orders}\n    routes: [{handler: log}]", 1))
		letters := func(args ...string) int {
			return strings.Count(f.must(t, append([]string{"list", "--json"}, args...)...), "\n")
		}
		if orders, other, named, given := letters("--consumer", "orders"), letters("--consumer", "other"),
			letters("--consumer", "other", f.place(0)), letters("--consumer", "other", "--handler", "orders"); orders != 2 ||
			other != 0 || named != 1 || given != 2 {
			t.Errorf("%d letters of orders, %d of other, %d by name, %d by the handler's name", orders, other, named, given)
		}
		if out := f.must(t, "replay", "--consumer", "other", "--to-handler"); !strings.Contains(out, "replayed 0 of 0") {
			t.Errorf("to the handler of other: %s", out)
		}
		if out := f.must(t, "purge", "--consumer", "other", "--all", "--yes"); out != "no letter to delete\n" {
			t.Errorf("purge of other: %s", out)
		}
		if out := f.must(t, "replay", "--consumer", "orders", "--to-handler"); !strings.Contains(out, "replayed 2 of 2") {
			t.Errorf("to the handler of orders: %s", out)
		}
	})
}
