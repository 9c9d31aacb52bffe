package consumer

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestScheduleCallsWhenDueAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule[int]()
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		type call struct {
			n  int
			at time.Duration
		}
		var calls []call
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.run(ctx, func(n int) { calls = append(calls, call{n, time.Since(start)}) })
		}()
		s.add(start.Add(3*time.Second), 3)
		synctest.Wait()
		s.add(start.Add(time.Second), 1) // earlier than the one waited for
		s.add(start.Add(2*time.Hour), 9)
		s.add(start.Add(2*time.Second), 2)
		time.Sleep(3 * time.Hour)
		cancel()
		<-done
		want := []call{{1, time.Second}, {2, 2 * time.Second}, {3, 3 * time.Second}, {9, 2 * time.Hour}}
		if !slices.Equal(calls, want) {
			t.Errorf("called %v, want %v", calls, want)
		}
	})
}

func TestScheduleTakeRemoves(t *testing.T) {
	s := newSchedule[int]()
	now := time.Now()
	for i := range 10 {
		s.add(now.Add(time.Duration(10-i)), i)
	}
	if got := s.take(func(n int) bool { return n%2 == 0 }); len(got) != 5 || s.len() != 5 {
		t.Fatalf("took %v, %d left", got, s.len())
	}
	rest, wait := s.pop(now.Add(time.Minute))
	if want := []int{9, 7, 5, 3, 1}; !slices.Equal(rest, want) || wait != 0 {
		t.Errorf("left %v, want %v", rest, want)
	}
}
