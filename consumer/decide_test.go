package consumer

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

func TestDecide(t *testing.T) {
	boom := errors.New("boom")
	policy := Retry{MaxAttempts: 3, GiveUpAfter: 10 * time.Second,
		Backoff: Backoff{Initial: 100 * time.Millisecond, Max: time.Second, Factor: 2, Jitter: 0.5}}
	for _, tt := range []struct {
		name string
		in   outcome
		want decision
	}{
		{"first failure", outcome{err: boom, attempt: 1, letters: true},
			decision{verdict: VerdictRetry, class: "error", runs: 1, delay: 100 * time.Millisecond}},
		{"second failure waits longer", outcome{err: boom, runs: 1, attempt: 2, letters: true},
			decision{verdict: VerdictRetry, class: "error", runs: 2, delay: 200 * time.Millisecond}},
		{"jitter takes off its share", outcome{err: boom, attempt: 1, random: 1},
			decision{verdict: VerdictRetry, class: "error", runs: 1, delay: 50 * time.Millisecond}},
		{"attempts used up", outcome{err: boom, runs: 2, attempt: 3, letters: true},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 3, exhausted: true}},
		{"used up, no place for dead letters: for ever at the longest backoff", outcome{err: boom, runs: 2, attempt: 3},
			decision{verdict: VerdictRetry, class: "error", runs: 3, delay: time.Second, exhausted: true}},
		{"a lower bound of attempts counts", outcome{err: boom, attempt: 3, trust: broker.AtLeast, letters: true},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 1, exhausted: true}},
		{"an upper bound alone does not", outcome{err: boom, attempt: 8, trust: broker.AtMost, letters: true},
			decision{verdict: VerdictRetry, class: "error", runs: 1, delay: 100 * time.Millisecond}},
		{"an upper bound far beyond does", outcome{err: boom, attempt: 9, trust: broker.AtMost, letters: true},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 1, exhausted: true}},
		{"time is over before the next attempt", outcome{err: boom, runs: 1, attempt: 2, failing: 9901 * time.Millisecond,
			letters: true, random: 1},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 2, exhausted: true}},
		{"there is time for one more", outcome{err: boom, runs: 1, attempt: 2, failing: 9900 * time.Millisecond, letters: true,
			random: 1},
			decision{verdict: VerdictRetry, class: "error", runs: 2, delay: 100 * time.Millisecond}},
		{"the same in a batch: its last run is when time is over", outcome{err: boom, runs: 1, attempt: 2,
			failing: 9901 * time.Millisecond, letters: true, random: 1, together: true},
			decision{verdict: VerdictRetry, class: "error", runs: 2, delay: 99 * time.Millisecond}},
		{"in a batch, time is over", outcome{err: boom, runs: 1, attempt: 2, failing: time.Hour, letters: true, together: true},
			decision{verdict: VerdictRetry, class: "error", runs: 2}},
		{"in a batch, its attempts are used up, too", outcome{err: boom, runs: 2, attempt: 3, failing: time.Hour, letters: true,
			together: true},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 3, exhausted: true}},
		{"in a batch, it asks for a wait that ends too late", outcome{err: RetryAfter(boom, 11*time.Second), attempt: 1,
			letters: true, together: true},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 1, exhausted: true}},
		{"it asks for a wait that ends too late", outcome{err: RetryAfter(boom, 11*time.Second), attempt: 1, letters: true},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 1, exhausted: true}},
		{"it asks for a wait for ever", outcome{err: RetryAfter(boom, math.MaxInt64), runs: 1, attempt: 2, failing: time.Second,
			letters: true},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 2, exhausted: true}},
		{"time is over, no place for dead letters", outcome{err: boom, attempt: 1, failing: time.Hour},
			decision{verdict: VerdictRetry, class: "error", runs: 1, delay: time.Second, exhausted: true}},
		{"permanent", outcome{err: fmt.Errorf("decoding: %w", Permanent(boom)), attempt: 1, letters: true},
			decision{verdict: VerdictDeadLetter, class: "permanent", runs: 1}},
		{"permanent, no place", outcome{err: Permanent(boom), attempt: 1},
			decision{verdict: VerdictRetry, class: "permanent", runs: 1, delay: time.Second, exhausted: true}},
		{"undecodable", outcome{err: fmt.Errorf("own: %w", Undecodable(boom)), attempt: 1, letters: true},
			decision{verdict: VerdictDeadLetter, class: "decode", runs: 1}},
		{"retry after", outcome{err: RetryAfter(boom, 5*time.Second), attempt: 1, letters: true},
			decision{verdict: VerdictRetry, class: "error", runs: 1, delay: 5 * time.Second}},
		{"overloaded, after a while", outcome{err: Overloaded(boom, 5*time.Second), attempt: 1, letters: true},
			decision{verdict: VerdictRetry, class: "error", runs: 1, delay: 5 * time.Second}},
		{"overloaded once more: the backoff from there on", outcome{err: Overloaded(boom, 15*time.Millisecond), runs: 1, attempt: 2,
			letters: true}, decision{verdict: VerdictRetry, class: "error", runs: 2, delay: 30 * time.Millisecond}},
		{"overloaded, told to come never", outcome{err: Overloaded(boom, math.MaxInt64), attempt: 1, letters: true, random: 1},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 1, exhausted: true}},
		{"overloaded, jitter adds its share", outcome{err: Overloaded(boom, 2*time.Second), attempt: 1, letters: true, random: 1},
			decision{verdict: VerdictRetry, class: "error", runs: 1, delay: 3 * time.Second}},
		{"overloaded, attempts used up", outcome{err: Overloaded(boom, 0), runs: 98, attempt: 99, letters: true},
			decision{verdict: VerdictRetry, class: "error", runs: 99, delay: time.Second}},
		{"overloaded, again and again", outcome{err: Overloaded(boom, 0), runs: 99, attempt: 100, letters: true},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 100, exhausted: true}},
		{"overloaded until now, and its batch failed", outcome{err: boom, runs: 40, refused: 39, attempt: 41, letters: true,
			together: true}, decision{verdict: VerdictRetry, class: "error", runs: 41, delay: time.Second}},
		{"overloaded between its failures, and its batch failed", outcome{err: boom, runs: 41, refused: 39, attempt: 42, letters: true,
			together: true}, decision{verdict: VerdictDeadLetter, class: "error", runs: 42, exhausted: true}},
		{"overloaded in a batch, again and again", outcome{err: Overloaded(boom, 0), runs: 99, refused: 99, attempt: 100, letters: true,
			together: true}, decision{verdict: VerdictDeadLetter, class: "error", runs: 100, exhausted: true}},
		{"overloaded until now, and it failed alone", outcome{err: boom, runs: 40, refused: 40, attempt: 41, letters: true},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 41, exhausted: true}},
		{"overloaded, and time is over", outcome{err: Overloaded(boom, 0), runs: 7, attempt: 8, failing: 10 * time.Second,
			letters: true}, decision{verdict: VerdictDeadLetter, class: "error", runs: 8, exhausted: true}},
		{"retry after counts as an attempt", outcome{err: RetryAfter(boom, time.Second), runs: 2, attempt: 3, letters: true},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 3, exhausted: true}},
		{"skip", outcome{err: Skip("old"), attempt: 9, letters: true}, decision{verdict: VerdictAck}},
		{"skip although cancelled", outcome{err: Skip("old"), cancelled: true}, decision{verdict: VerdictAck}},
		{"skip after its time", outcome{err: &lateError{Skip("old")}}, decision{verdict: VerdictAck}},
		{"skips, joined", outcome{err: fmt.Errorf("parts: %w", errors.Join(Skip("old"), Skip("older")))},
			decision{verdict: VerdictAck}},
		{"skip beside a failure", outcome{err: errors.Join(Skip("old"), boom), attempt: 1, letters: true},
			decision{verdict: VerdictRetry, class: "error", runs: 1, delay: 100 * time.Millisecond}},
		{"skip beside a failure for good", outcome{err: errors.Join(Permanent(boom), Skip("old")), attempt: 1, letters: true},
			decision{verdict: VerdictDeadLetter, class: "permanent", runs: 1}},
		{"cancelled is no attempt", outcome{err: boom, runs: 2, attempt: 3, cancelled: true, letters: true},
			decision{verdict: VerdictGiveBack, runs: 2}},
		{"cancelled and permanent: never dead-lettered", outcome{err: Permanent(boom), runs: 2, cancelled: true, letters: true},
			decision{verdict: VerdictGiveBack, runs: 2}},
		{"panic", outcome{err: &PanicError{Value: "x"}, attempt: 1},
			decision{verdict: VerdictRetry, class: "panic", runs: 1, delay: 100 * time.Millisecond}},
		{"goexit", outcome{err: ErrGoexit, attempt: 1}, decision{verdict: VerdictRetry, class: "goexit", runs: 1,
			delay: 100 * time.Millisecond}},
		{"timeout", outcome{err: &lateError{boom}, attempt: 1},
			decision{verdict: VerdictRetry, class: "timeout", runs: 1, delay: 100 * time.Millisecond}},
		{"ended its process: no run here", outcome{err: ErrCrashes, attempt: 1, letters: true},
			decision{verdict: VerdictDeadLetter, class: "crash"}},
		{"too large: no run", outcome{err: ErrTooLarge, attempt: 1, letters: true},
			decision{verdict: VerdictDeadLetter, class: "oversize"}},
		{"before the last delivery: again", outcome{err: boom, attempt: 4, maxDeliv: 5, trust: broker.AtMost, letters: true},
			decision{verdict: VerdictRetry, class: "error", runs: 1, delay: 100 * time.Millisecond}},
		{"last delivery: handed on", outcome{err: boom, attempt: 5, maxDeliv: 5, trust: broker.AtMost, letters: true},
			decision{verdict: VerdictDeadLetter, class: "error", runs: 1}},
		{"last delivery, no place: kept here", outcome{err: boom, attempt: 5, maxDeliv: 5, trust: broker.AtMost},
			decision{verdict: VerdictRetry, class: "error", runs: 1, delay: 100 * time.Millisecond, keep: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decide(tt.in, policy); got != tt.want {
				t.Errorf("decide:\n got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// Who wants no end by attempts says a number that is never reached, and three times that is more than there is.
func TestAttemptsWithoutEnd(t *testing.T) {
	o := outcome{err: errors.New("boom"), attempt: 1, trust: broker.AtMost, letters: true}
	for _, most := range []int{math.MaxInt / 2, math.MaxInt} {
		if d := decide(o, Retry{MaxAttempts: most, Backoff: Backoff{}.withDefaults()}); d.verdict != VerdictRetry || d.exhausted {
			t.Errorf("with %d attempts: %+v", most, d)
		}
	}
}

func TestBackoffIsCappedForAnyNumber(t *testing.T) {
	b := Backoff{}.withDefaults()
	for _, n := range []int32{-1, 0, 1, 2, 10, 1000, 1 << 30} {
		if d := b.delay(n, 0); d < b.Initial || d > b.Max {
			t.Errorf("delay(%d) = %v, want %v..%v", n, d, b.Initial, b.Max)
		}
		if d := b.delay(n, 1); d < 0 || d > b.Max {
			t.Errorf("delay(%d) with all jitter = %v", n, d)
		}
	}
}
