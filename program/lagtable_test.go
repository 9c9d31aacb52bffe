package program

import (
	"strings"
	"testing"
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
