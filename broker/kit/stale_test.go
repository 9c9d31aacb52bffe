package kit_test

import (
	"testing"

	"github.com/longshoremq/longshore/broker/kit"
)

// TestStaleInFlight: an offset may be handed out again when it was settled under each claim that ended with it.
func TestStaleInFlight(t *testing.T) {
	s := make(kit.StaleInFlight[string])
	if s.Any("a") || kit.StaleOffsets(nil).Has(1) {
		t.Error("something is out, and nothing was added")
	}
	of := s.Of("a")
	s.Add("a", 1)
	s.Add("a", 1)
	s.Add("a", 2)
	s.Add("b", 1)
	if !of.Has(1) || !of.Has(2) || of.Has(3) {
		t.Errorf("%v are out", of)
	}
	for i, want := range []struct {
		offset     int64
		free, last bool
	}{{1, false, false}, {2, true, false}, {1, true, true}} {
		if free, last := s.Settle("a", want.offset); free != want.free || last != want.last {
			t.Errorf("settle %d: free %v, last %v", i, free, last)
		}
	}
	if s.Any("a") || of.Has(1) || !s.Any("b") {
		t.Errorf("%v are out", s)
	}
	s.Add("a", 7)
	if !of.Has(7) {
		t.Error("what a claim keeps is not the log's any more")
	}
	s.Forget("a")
	if !s.Any("a") || !of.Has(7) {
		t.Error("what is out was forgotten")
	}
	s.Settle("a", 7)
	if s.Forget("a"); len(s) != 1 {
		t.Errorf("%v is kept, and only b has something out", s)
	}
}
