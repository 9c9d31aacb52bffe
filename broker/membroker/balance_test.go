package membroker

import (
	"testing"

	"pgregory.net/rapid"
)

// The assignment is even, complete, and moves only what must move.
func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := make([]*member, 6)
		for i := range members {
			members[i] = &member{id: int32(i + 1)}
		}
		takers := members[:rapid.IntRange(0, 6).Draw(t, "takers")]
		owners := make([]*member, rapid.IntRange(0, 20).Draw(t, "partitions"))
		for i := range owners {
			if n := rapid.IntRange(0, 6).Draw(t, "owner"); n > 0 {
				owners[i] = members[n-1]
			}
		}
		got := spread(owners, takers)
		if len(takers) == 0 {
			for i := range got {
				if got[i] != owners[i] {
					t.Fatal("without takers something moved")
				}
			}
			return
		}
		checkSpread(t, owners, takers, got)
	})
}

func checkSpread(t *rapid.T, owners, takers, got []*member) {
	has, had := map[*member]int{}, map[*member]int{}
	moved := 0
	for i, m := range got {
		if m == nil {
			t.Fatalf("partition %d has no owner", i)
		}
		has[m]++
		had[owners[i]]++
		if owners[i] != m {
			moved++
		}
	}
	quota, extra := len(owners)/len(takers), len(owners)%len(takers)
	kept, full := 0, 0
	for _, m := range takers {
		if n := has[m]; n < quota || n > quota+1 {
			t.Fatalf("a member has %d of %d partitions for %d members", n, len(owners), len(takers))
		}
		k := min(had[m], quota)
		if had[m] > quota && full < extra {
			full++
			k++
		}
		kept += k
		delete(has, m)
	}
	if len(has) > 0 {
		t.Fatal("somebody who is no taker has a partition")
	}
	if want := len(owners) - kept; moved != want {
		t.Fatalf("%d partitions moved, %d had to", moved, want)
	}
}
