package autoscaler_test

import (
	"encoding/csv"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/longshoremq/longshore/integration/autoscaler"
)

// TestWanted: the number is that of Kubernetes' own calculator.
func TestWanted(t *testing.T) {
	f, err := os.Open("testdata/calculator.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 1000 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, row := range rows[1:] {
		have, _ := strconv.Atoi(row[0])
		milli, _ := strconv.Atoi(row[1])
		want, _ := strconv.Atoi(row[2])
		if got := autoscaler.Wanted(have, float64(milli)/1000, 1); got != want {
			t.Errorf("%d replicas and a metric of %d/1000: %d, Kubernetes wants %d", have, milli, got, want)
		}
	}
}

func TestNext(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := &autoscaler.Autoscaler{Min: 1, Max: 12, Settle: 5 * time.Minute}
	have := 1
	for i, step := range []struct {
		sec    int
		metric float64
		known  bool
		want   int
	}{
		{0, 1.05, true, 1},  // within the tolerance
		{15, 9, true, 5},    // 4 more at once
		{30, 9, true, 9},    // or twice as many
		{45, 99, true, 12},  // no more than there may be
		{60, 1, true, 12},   // not down
		{75, 0, false, 12},  // unknown
		{340, 3, true, 12},  // 12 was wanted 295 s ago
		{374, 3, true, 12},  // the unknown counts as the number that there was, and that is 299 s ago
		{375, 3, true, 3},   // all of that is 300 s ago
		{390, 0, true, 3},   // 3 was wanted
		{690, 0, true, 1},   // no less than there must be
		{700, 2.1, true, 3}, // up at once
	} {
		if have = a.Next(begin.Add(time.Duration(step.sec)*time.Second), have, step.metric, 1, step.known); have != step.want {
			t.Fatalf("step %d, at %d s: %d, want %d", i, step.sec, have, step.want)
		}
	}
}
