package natsbroker

import "testing"

func TestFinishedIsBounded(t *testing.T) {
	const room = 4 * finishedPage
	f := newFinished(room - 100)
	for i := range uint64(10_000) {
		f.add(i, 7)
	}
	for i := range uint64(10_000) {
		if got, want := f.has(i, 7), i >= 10_000-room; got != want {
			t.Fatalf("%d: %v", i, got)
		}
		if f.has(i, 8) {
			t.Fatalf("%d of another time is taken for finished", i)
		}
	}
	f.forget()
	if f.has(9_999, 7) {
		t.Fatal("not forgotten")
	}
	none := newFinished(0)
	none.add(1, 1)
	if none.has(1, 1) {
		t.Fatal("remembered without room")
	}
}

// A consumer that has little to do takes little memory for what it has finished.
func TestFinishedTakesWhatItNeeds(t *testing.T) {
	f := newFinished(1 << 16)
	for i := range uint64(finishedPage) {
		f.add(5*finishedPage+i, 7)
	}
	used := 0
	for _, p := range f.pages {
		if p != nil {
			used++
		}
	}
	if used != 1 {
		t.Errorf("%d pages for %d messages", used, finishedPage)
	}
}
