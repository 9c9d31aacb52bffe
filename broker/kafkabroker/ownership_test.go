package kafkabroker

import (
	"slices"
	"testing"
)

// TestOwnership: what plans, releases and losses make of what a member has.
func TestOwnership(t *testing.T) {
	t.Parallel()
	of := func(nos ...int32) (ps []partitionID) {
		for _, no := range nos {
			ps = append(ps, partitionID{"orders", no})
		}
		return ps
	}
	for name, c := range map[string]struct {
		eager  bool
		do     func(a *ownership) []partitionID
		told   []partitionID // by the last deed
		has    []partitionID
		owes   bool
		rejoin bool
	}{
		"what comes": {do: func(a *ownership) []partitionID {
			add, _ := a.follow(of(1, 2))
			return add
		}, told: of(1, 2), has: of(1, 2)},
		"what stays is not told again": {do: func(a *ownership) []partitionID {
			a.follow(of(1))
			add, _ := a.follow(of(1, 2))
			return add
		}, told: of(2), has: of(1, 2)},
		"what goes stays ours until it is drained": {do: func(a *ownership) []partitionID {
			a.follow(of(1, 2))
			_, drop := a.follow(of(2))
			return drop
		}, told: of(1), has: of(1, 2), owes: true},
		"it is to be given up once": {do: func(a *ownership) []partitionID {
			a.follow(of(1, 2))
			a.follow(of(2))
			_, drop := a.follow(of(2))
			return drop
		}, has: of(1, 2), owes: true},
		"what is drained calls for a join": {do: func(a *ownership) []partitionID {
			a.follow(of(1, 2))
			a.follow(of(2))
			return a.release(of(1))
		}, has: of(2), owes: true, rejoin: true},
		"but not while more is to be drained": {do: func(a *ownership) []partitionID {
			a.follow(of(1, 2))
			a.follow(nil)
			return a.release(of(1))
		}, has: of(2), owes: true},
		"the eager protocol joins by itself": {eager: true, do: func(a *ownership) []partitionID {
			a.follow(of(1))
			a.follow(nil)
			return a.release(of(1))
		}, owes: true},
		"a join says so": {do: func(a *ownership) []partitionID {
			a.follow(of(1, 2))
			a.follow(of(2))
			a.release(of(1))
			return a.join()
		}, told: of(2), has: of(2), owes: true},
		"what the group wants back meanwhile comes again": {do: func(a *ownership) []partitionID {
			a.follow(of(1))
			a.follow(nil)
			a.follow(of(1))
			return a.release(of(1))
		}, told: of(1), has: of(1), owes: true},
		"what nobody wanted stays": {do: func(a *ownership) []partitionID {
			a.follow(of(1))
			return a.release(of(1))
		}, has: of(1)},
		"all is lost": {do: func(a *ownership) []partitionID {
			a.follow(of(1, 2))
			a.follow(of(2))
			return a.lose()
		}, told: of(1, 2), owes: true, rejoin: true},
		"what was lost is not released": {do: func(a *ownership) []partitionID {
			a.follow(of(1))
			a.follow(nil)
			a.lose()
			return a.release(of(1))
		}, owes: true, rejoin: true},
		"what is lost before the plan is heard may be kept for us": {do: func(a *ownership) []partitionID {
			a.follow(of(1, 2))
			a.join()
			a.lose()
			add, _ := a.follow(of(2))
			return add
		}, told: of(2), has: of(2), rejoin: true},
		"who joins without anything is to join once": {do: func(a *ownership) []partitionID {
			a.follow(of(1))
			a.lose()
			a.join()
			a.lose()
			add, _ := a.follow(of(1))
			return add
		}, told: of(1), has: of(1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newOwnership(!c.eager)
			if told := c.do(&a); !slices.Equal(told, c.told) {
				t.Errorf("tells of %v, want %v", told, c.told)
			}
			if has := sorted(a.owned); !slices.Equal(has, c.has) {
				t.Errorf("has %v, want %v", has, c.has)
			}
			if a.owes != c.owes || a.rejoin != c.rejoin {
				t.Errorf("owes %t, is to join again %t, want %t and %t", a.owes, a.rejoin, c.owes, c.rejoin)
			}
		})
	}
}
