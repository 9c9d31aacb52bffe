package program

import (
	"errors"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/deadletters"
)

// TestDLQNamesWhatIsMissing: letters that are named and are not there are named again, and nothing is changed.
func TestDLQNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", "a", "b", "c")
		for _, command := range []string{"list", "replay", "replay --dry-run", "purge --yes", "purge --dry-run"} {
			out, err := f.dlq(t, append(strings.Fields(command), f.place(1), f.place(76), f.place(0), f.place(77))...)
			if !errors.Is(err, deadletters.ErrNoLetter) || out != "" {
				t.Errorf("%s: %v\n%s", command, err, out)
				continue
			}
			for _, n := range []int{76, 77} {
				if want := "there is no such letter: " + f.place(n) + " in dead.orders"; !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v does not say %q", command, err, want)
				}
			}
			if strings.Contains(err.Error(), "letter: "+f.place(1)+" in") {
				t.Errorf("%s: %v", command, err)
			}
		}
		foreign, want := "0/2", "on JetStream a letter is named by its sequence"
		if f.kafka {
			foreign, want = "1", "on Kafka a letter is named by partition/offset"
		}
		for _, command := range []string{"list", "show", "edit --header a=b", "replay", "purge --yes"} {
			_, err := f.dlq(t, append(strings.Fields(command), foreign)...)
			var use usageError
			if !errors.As(err, &use) || !strings.Contains(err.Error(), "letter "+foreign+": "+want) {
				t.Errorf("%s: %v", command, err)
			}
		}
		if left, sent := len(f.stored(t, "dead.orders")), len(f.stored(t, "orders")); left != 3 || sent != 0 {
			t.Errorf("%d letters, %d messages in orders", left, sent)
		}
		if out := f.must(t, "list", "--json", f.place(1), f.place(1)); strings.Count(out, "\n") != 1 {
			t.Errorf("named twice: %s", out)
		}
	})
}

// TestDLQNamesNoDestination: what is no topic or subject is none in a dry run either, which said where the letters would go.
func TestDLQNamesNoDestination(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", "a")
		to, want := "orders.>", `--to is "orders.>", want a subject without wildcards`
		if f.kafka {
			to, want = "or ders", `--to is "or ders", want a topic's name`
		}
		for _, command := range []string{"replay --dry-run", "replay", "edit --header a=b " + f.place(0)} {
			out, err := f.dlq(t, append(strings.Fields(command), "--to", to)...)
			var use usageError
			if !errors.As(err, &use) || !strings.Contains(err.Error(), want) || out != "" {
				t.Errorf("%s: %v\n%s", command, err, out)
			}
		}
	})
}

// TestDLQKnowsTheClasses: help and completion have all classes of failures.
func TestDLQKnowsTheClasses(t *testing.T) {
	t.Parallel()
	help, err := run(t.Context(), "dlq", "purge", "--help")
	completion, cerr := run(t.Context(), "__complete", "dlq", "purge", "--class", "")
	if err := errors.Join(err, cerr); err != nil {
		t.Fatal(err)
	}
	for _, class := range consumer.FailureClasses() {
		if !strings.Contains(help, class) || !strings.Contains(completion, class+"\n") {
			t.Errorf("%s is not in\n%s\n%s", class, help, completion)
		}
	}
}
