package program

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/deadletters"
)

// TestDLQSaysWhatItFound: letters of a replay that was killed had arrived, had not, or nobody can tell; each is said.
func TestDLQSaysWhatItFound(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", "a", "b", "c")
		done, err := f.store.Scan(t.Context(), broker.Scan{Topic: "dead.orders"},
			func(*broker.Message) error { return broker.ErrStopScan })
		if err != nil {
			t.Fatal(err)
		}
		if err := f.store.CreateLog(t.Context(), deadletters.JournalTopic("dead.orders"), "dead.orders"); err != nil {
			t.Fatal(err)
		}
		partition, first := "0", 0
		if !f.kafka {
			partition, first = "-1", 1
		}
		begun := func(to string, from, end int) broker.Outgoing {
			return broker.Outgoing{Topic: deadletters.JournalTopic("dead.orders"),
				Value: fmt.Appendf(nil, `{"v":1,"step":"begin","run":"killed","at":%q,"log":%q,"letters":{%q:{%q:[[%d,%d]]}}}`,
					time.Now().Add(-time.Minute).UTC().Format(time.RFC3339Nano), done.Log, to, partition, first+from, first+end)}
		}
		arrived := broker.Outgoing{Topic: "orders", Value: []byte("a"), ID: "replay/dead.orders/" + done.Log + "/" + f.place(0)}
		if err := f.p.Publish(t.Context(), []broker.Outgoing{begun("orders", 0, 2), begun("gone", 2, 3), arrived}); err != nil {
			t.Fatal(err)
		}
		if out := f.must(t, "list", "--state", "uncertain", "--json"); strings.Count(out, "\n") != 3 {
			t.Errorf("uncertain:\n%s", out)
		}
		out := f.must(t, "replay")
		for _, want := range []string{
			"replayed 2 of 2 letters; 1 replayed before",
			"on their way when an earlier replay was stopped, had arrived, not published again (1): " + f.place(0) + "\n",
			"on their way when an earlier replay was stopped, had not arrived, waiting again (1): " + f.place(1) + "\n",
			"PERHAPS THERE TWICE: nobody can tell whether they had arrived before (1): " + f.place(2) + "\n",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
		if got := f.stored(t, "orders"); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("in orders: %q", got)
		}
		if out := f.must(t, "list"); strings.Count(out, "perhaps-twice") != 1 {
			t.Errorf("list:\n%s", out)
		}
		if out := f.must(t, "show", f.place(2)); !strings.Contains(out, "replayed,perhaps-twice") {
			t.Errorf("show:\n%s", out)
		}
		if out := f.must(t, "replay"); !strings.Contains(out, "replayed 0 of 0 letters; 3 replayed before") {
			t.Errorf("once more:\n%s", out)
		}
	})
}
