package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/rs/zerolog"
)

// sheet is a log that a test may read meanwhile.
type sheet struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (s *sheet) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

// of returns the lines of one event so far.
func (s *sheet) of(t *testing.T, event string) (lines []map[string]any) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.out.String()) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e["event"] == event {
			lines = append(lines, e)
		}
	}
	return lines
}

// What was not written is told when its second is over, though nothing of that name happens any more.
func TestLogTellsWhatItSuppressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sheet
		observe := consumer.LogEvents(zerolog.New(&out))
		tell := func(n int) {
			for range n {
				observe(consumer.Skipped{Message: &consumer.Message{Topic: "in", Partition: -1, Offset: 7}, Reason: "old"})
			}
			synctest.Wait()
		}
		want := func(lines int, suppressed float64) {
			t.Helper()
			got := out.of(t, "skipped")
			if len(got) != lines {
				t.Fatalf("%d lines, want %d", len(got), lines)
			}
			last := got[lines-1]
			if n, _ := last["suppressed"].(float64); n != suppressed || (suppressed > 0) == (last["topic"] != nil) ||
				last["level"] != "info" {
				t.Errorf("the last line is %v, want suppressed %v", last, suppressed)
			}
		}
		tell(10)
		time.Sleep(5 * time.Second)
		want(10, 0) // none was too many
		tell(80)
		want(20, 0)
		time.Sleep(time.Second)
		synctest.Wait()
		want(21, 70)
		time.Sleep(time.Minute)
		want(21, 70) // told once
		tell(15)
		want(31, 0)
		observe(consumer.StateChanged{State: consumer.Stopped})
		want(32, 5) // at once: the process may end now
		if last := out.of(t, "state"); len(last) != 1 {
			t.Errorf("states: %v", last)
		}
		time.Sleep(time.Minute)
		want(32, 5)
	})
}

// Where dead letters cannot be stored, each of them fails, again and again, by one and the same reason. That is told once, and
// then once a minute with how many; by another reason it is told beside that.
func TestLogTellsDelayedLettersSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sheet
		observe := consumer.LogEvents(zerolog.New(&out))
		delayed := func(reason string, n int) {
			for i := range n {
				observe(consumer.DeadLetterDelayed{
					Message: &consumer.Message{Topic: "in", Partition: -1, Offset: int64(i)}, Err: errors.New(reason),
				})
			}
			synctest.Wait()
		}
		want := func(lines int, reason string, suppressed float64) {
			t.Helper()
			got := out.of(t, "dead_letter_delayed")
			if len(got) != lines {
				t.Fatalf("%d lines, want %d", len(got), lines)
			}
			last := got[lines-1]
			if n, _ := last["suppressed"].(float64); n != suppressed || last["error"] != reason || last["level"] != "error" {
				t.Errorf("the last line is %v, want %q and suppressed %v", last, reason, suppressed)
			}
		}
		for range 15 {
			delayed("no right", 50)
			time.Sleep(time.Second)
		}
		want(1, "no right", 0)
		delayed("too large", 1)
		want(2, "too large", 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		want(3, "no right", 749)
		delayed("no right", 2)
		want(4, "no right", 0)
		observe(consumer.StateChanged{State: consumer.Stopped})
		want(5, "no right", 1)
		for i := range 1000 { // reasons that name each letter are held back as others are, and are not all remembered
			delayed(fmt.Sprint("letter ", i), 1)
		}
		if n := len(out.of(t, "dead_letter_delayed")); n > 5+100+10 {
			t.Errorf("%d lines for 1000 letters that each have a reason of their own", n)
		}
	})
}

// A clean stop has no line with an error, which somebody may alert on.
func TestLogOfACleanStopHasNoError(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		var out sheet
		src := &ending{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}})}
		r := start(t, b, consumer.Config{Source: src, Logger: zerolog.New(&out),
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		ended := out.of(t, "source_ended")
		if len(ended) == 0 {
			t.Error("the end of the claims was not told")
		}
		if all := out.out.String(); strings.Contains(all, `"error"`) {
			t.Errorf("a clean stop logs an error:\n%s", all)
		}
		src.options.Observe(broker.Event{Kind: broker.Ended, Err: fmt.Errorf("orders/0: %w", broker.ErrRevoked)})
		if ended = out.of(t, "source_ended"); ended[len(ended)-1]["error"] != nil || ended[len(ended)-1]["reason"] != "revoked" {
			t.Errorf("the end of a claim in an orderly rebalance is logged as %v", ended[len(ended)-1])
		}
		src.options.Observe(broker.Event{Kind: broker.Ended, Err: broker.ErrLost})
		if ended = out.of(t, "source_ended"); ended[len(ended)-1]["error"] == nil {
			t.Error("a claim was lost, and the log does not say why")
		}
	})
}

// ending keeps what the engine told it at Open.
type ending struct {
	broker.Source
	options broker.Options
}

func (e *ending) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	e.options = o
	return e.Source.Open(ctx, o)
}

// Who sees the size change sees within which limits it may.
func TestLogOfScalingHasTheLimits(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		var out sheet
		r := start(t, b, consumer.Config{Logger: zerolog.New(&out),
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		time.Sleep(time.Second)
		if err := r.SetLimits(4, 9); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		scaled := out.of(t, "scaled")
		if len(scaled) != 1 || scaled[0]["to"] != 4.0 || scaled[0]["min"] != 4.0 || scaled[0]["max"] != 9.0 {
			t.Errorf("scaled: %v", scaled)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// What is not known of a gap is left out, and not told as -1.
func TestLogOfAGap(t *testing.T) {
	for _, tc := range []struct {
		from, n        int64
		hasFrom, hasNr bool
	}{{0, 5, true, true}, {7, 5, true, true}, {0, -1, false, false}, {7, -1, true, false}} {
		synctest.Test(t, func(t *testing.T) {
			var out sheet
			observe := consumer.LogEvents(zerolog.New(&out))
			observe(consumer.SourceEvent{Event: broker.Event{Kind: broker.Gap, From: tc.from, N: tc.n}})
			synctest.Wait()
			line := out.of(t, "source_gap")[0]
			from, hasFrom := line["from"]
			n, hasNr := line["messages"]
			if hasFrom != tc.hasFrom || hasNr != tc.hasNr || hasFrom && from != float64(tc.from) || hasNr && n != float64(tc.n) {
				t.Errorf("from %d, %d messages: %v", tc.from, tc.n, line)
			}
		})
	}
}

// What was not written is told by a timer, and not by who told of the event: a writer that panics there ends no process either.
func TestLogWriterThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(kinds["partitioned"])
		produce(t, b, 30)
		r := start(t, b, consumer.Config{Logger: zerolog.New(brokenPipe{}), Handler: func(context.Context, *consumer.Message) error {
			return consumer.Skip("old")
		}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 0)
	})
}

// brokenPipe is a writer that panics.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { panic("no connection") }
