package program

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestLagTotal: what is unknown is not counted as 0, neither in the table nor in JSON.
func TestLagTotal(t *testing.T) {
	known := func(lag, finished int64) lagRow { return lagRow{Lag: &lag, Finished: &finished} }
	for _, c := range []struct {
		rows       []lagRow
		want, json string
	}{
		{nil, "lag 0, of these finished 0", `"lag":0,"finished":0,"unknown_rows":0}`},
		{[]lagRow{{}}, "lag unknown", `"lag":null,"finished":null,"unknown_rows":1}`},
		{[]lagRow{{}, {}}, "lag unknown", `"lag":null,"finished":null,"unknown_rows":2}`},
		{[]lagRow{{}, known(3, 1)}, "lag 3, of these finished 1; 1 unknown", `"lag":3,"finished":1,"unknown_rows":1}`},
		{[]lagRow{known(3, 1)}, "lag 3, of these finished 1", `"lag":3,"finished":1,"unknown_rows":0}`},
	} {
		r := lagReport{Rows: c.rows}
		r.sum()
		var out, asJSON strings.Builder
		if err := (&lagTable{out: &out}).print(r); err != nil || !strings.HasSuffix(out.String(), "\n"+c.want+"\n") {
			t.Errorf("%q, want %q: %v", out.String(), c.want, err)
		}
		if err := r.printJSON(&asJSON); err != nil || !strings.HasSuffix(asJSON.String(), c.json+"\n") {
			t.Errorf("%q, want %q: %v", asJSON.String(), c.json, err)
		}
	}
}

// TestLagTellsABrokerOnce: the brokers of several consumers are asked at once, and what one of them answers to all is told once.
func TestLagTellsABrokerOnce(t *testing.T) {
	t.Parallel()
	_, at := startKafka(t, kfake.SeedTopics(1, "orders"))
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("consumers:\n")
	for _, name := range []string{"a", "b", "c"} {
		fmt.Fprintf(&text, "  %s: {source: {kafka: {brokers: ['127.0.0.1:1'], topics: [%[1]s], group: g}}, "+
			"routes: [{handler: log}]}\n", name)
	}
	fmt.Fprintf(&text, "  there: {source: {kafka: {brokers: [%q], topics: [orders], group: g}}, routes: [{handler: log}]}\n", at)
	text.WriteString("  core: {source: {nats_core: {url: 'nats://h:1', subjects: [o], queue: q}}, routes: [{handler: log}]}\n")
	writeFile(t, dir, "c.yaml", text.String())
	out, err := run(t.Context(), "lag", "-c", filepath.Join(dir, "c.yaml"), "--timeout", "5s")
	if err == nil || strings.Count(err.Error(), "reading lag: ") != 1 || strings.Count(err.Error(), "\n") != 0 {
		t.Errorf("told is %q", err)
	}
	if !strings.Contains(out, "longshore: consumer core: core NATS keeps nothing, so there is no lag\n") ||
		!strings.HasSuffix(out, "\nlag unknown\n") {
		t.Errorf("printed is\n%s", out)
	}
}
