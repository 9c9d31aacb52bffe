package program

import (
	"strings"
	"testing"
)

// TestLagTotal: what is unknown is not counted as 0.
func TestLagTotal(t *testing.T) {
	known := func(lag, finished int64) lagRow { return lagRow{Lag: &lag, Finished: &finished} }
	for _, c := range []struct {
		report lagReport
		want   string
	}{
		{lagReport{}, "lag 0, of these finished 0"},
		{lagReport{Rows: []lagRow{{}}, Unknown: 1}, "lag unknown"},
		{lagReport{Rows: []lagRow{{}, {}}, Unknown: 2}, "lag unknown"},
		{lagReport{Rows: []lagRow{{}, known(3, 1)}, Lag: 3, Finished: 1, Unknown: 1}, "lag 3, of these finished 1; 1 unknown"},
		{lagReport{Rows: []lagRow{known(3, 1)}, Lag: 3, Finished: 1}, "lag 3, of these finished 1"},
	} {
		var out strings.Builder
		if err := (&lagTable{out: &out}).print(c.report); err != nil || !strings.HasSuffix(out.String(), "\n"+c.want+"\n") {
			t.Errorf("%q, want %q: %v", out.String(), c.want, err)
		}
	}
}
