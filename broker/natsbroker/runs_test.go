package natsbroker

import "testing"

// What was settled takes no room from those that wait, and who was given back once more is not the oldest any more.
func TestRunsRememberThoseThatWait(t *testing.T) {
	for name, do := range map[string]func(r *runs){
		"others come and are settled": func(r *runs) {
			r.put(1, 0, 3, 0)
			for i := range uint64(100) {
				r.put(10+i, 0, 1, 0)
				r.settled(10+i, 0)
			}
		},
		"it had nothing to tell for a while": func(r *runs) {
			r.put(1, 0, 0, 5) // put off
			r.put(1, 0, 0, 0) // given back, by a pause
			r.put(1, 0, 3, 0)
			for i := range uint64(9) {
				r.put(10+i, 0, 1, 0)
			}
		},
		"it fails again and again": func(r *runs) {
			for i := range uint64(100) {
				r.put(1, 0, 3, 0)
				r.put(10+i, 0, 1, 0)
			}
		},
	} {
		r := newRuns(10)
		do(r)
		if e, ok := r.get(1, 0); !ok || e.failed != 3 {
			t.Errorf("%s: the message that waits is known by %+v, %v", name, e, ok)
		}
	}
}

func TestRunsAreBounded(t *testing.T) {
	r := newRuns(10)
	for i := range uint64(25) {
		r.put(i, 0, int32(i+1), 0)
	}
	for i := range uint64(25) {
		e, ok := r.get(i, 0)
		if ok != (i >= 15) || (ok && e.failed != int32(i+1)) {
			t.Fatalf("%d: %+v, %v", i, e, ok)
		}
	}
	r.put(20, 0, 9, 5)
	if e, _ := r.get(20, 0); e.failed != 9 || e.due != 5 || len(r.known) != 10 {
		t.Fatalf("%+v, %d known", e, len(r.known))
	}
	r.put(21, 0, 0, 0) // says nothing
	r.settled(22, 0)
	if len(r.known) != 8 {
		t.Fatalf("%d known", len(r.known))
	}
}
