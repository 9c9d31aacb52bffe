package kit_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

func TestTally(t *testing.T) {
	for name, tc := range map[string]struct {
		tally kit.Tally
		lost  int
		is    error
	}{
		"nothing":          {},
		"held":             {tally: kit.Tally{Held: 2}},
		"lost":             {tally: kit.Tally{Held: 1, Lost: 2}, lost: 2, is: broker.ErrLost},
		"lost, and why":    {tally: kit.Tally{Lost: 1, Why: errAway}, lost: 1, is: errAway},
		"again":            {tally: kit.Tally{Held: 1, Again: 1}, is: broker.ErrSettled},
		"lost and again":   {tally: kit.Tally{Lost: 3, Again: 1}, lost: 3, is: broker.ErrLost},
		"held, and no why": {tally: kit.Tally{Held: 1, Why: errAway}},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.tally.Err()
			if (err == nil) != (tc.is == nil) || !errors.Is(err, tc.is) {
				t.Fatalf("the error is %v, want %v", err, tc.is)
			}
			lost := (*broker.LostError)(nil)
			if errors.As(err, &lost) != (tc.lost > 0) || lost != nil && lost.N != tc.lost {
				t.Errorf("the error is %#v, want one of %d lost", err, tc.lost)
			}
		})
	}
}

// What an Ack counts.
func ExampleTally() {
	out := map[uint64]bool{1: true, 2: true} // what is handed out and not settled
	var t kit.Tally
	for _, token := range []uint64{1, 1} {
		if out[token] {
			t.Held++
		} else {
			t.Again++
		}
		delete(out, token)
	}
	fmt.Println(t.Held, t.Err())
	// Output: 1 broker: already settled
}
