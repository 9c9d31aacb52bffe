package program

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"go.uber.org/goleak"
)

// atOnce is how many tests run beside each other: most of them wait for processes, sessions and ends of time, and not for
// processors.
const atOnce = "16"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", atOnce); err != nil { // what the command line says comes after this, in Run
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if builtDir != "" {
			_ = os.RemoveAll(builtDir)
		}
		os.Exit(code)
	}))
}

// run calls the program as a shell would.
func run(ctx context.Context, args ...string) (stdout string, err error) {
	return runIn(ctx, "", args...)
}

// runIn is run with a standard input.
func runIn(ctx context.Context, stdin string, args ...string) (stdout string, err error) {
	root := newRoot(Parts{}.withDefaults())
	var out bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	return out.String(), err
}

func TestDemoLosesNothing(t *testing.T) {
	t.Parallel()
	out, err := run(t.Context(), "demo", "--duration", "1s", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]float64
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("stdout is not one JSON object: %v\n%s", err, out)
	}
	for _, key := range []string{"published", "handled", "lost", "duplicates", "peak_workers", "p50_ms", "p99_ms"} {
		if _, ok := s[key]; !ok {
			t.Errorf("no %q in %s", key, out)
		}
	}
	if s["published"] == 0 || s["handled"] != s["published"] || s["lost"] != 0 || s["p50_ms"] < 4 {
		t.Errorf("summary: %s", out)
	}
}

// TestDemoGrows: a machine that has no time for the burst of one demo has it for that of a longer one.
func TestDemoGrows(t *testing.T) {
	t.Parallel()
	for duration := 4 * time.Second; ; duration *= 2 {
		s, err := runDemo(t.Context(), nil, duration, &view{out: io.Discard})
		if err != nil || s.Lost > 0 {
			t.Fatalf("%+v: %v", s, err)
		}
		if s.PeakWorkers >= 8 {
			return
		}
		t.Logf("in %v: %+v", duration, s)
	}
}

func TestDemoCountsWhenStoppedEarly(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	progress := writerFunc(func(b []byte) (int, error) {
		if bytes.Contains(b, []byte("workers ")) {
			cancel() // it has begun
		}
		return len(b), nil
	})
	s, err := runDemo(ctx, nil, time.Hour, &view{out: progress})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := s.print(&out, false); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "published ") || !strings.Contains(out.String(), "lost 0,") {
		t.Errorf("summary: %s", out.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestWrongUseIsAUsageError(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"demo", "--duration", "soon"}, {"demo", "--duration", "1ms"}, {"demo", "extra"},
		{"demo", "--colour"}, {"nothing"}} {
		_, err := run(t.Context(), args...)
		var use usageError
		if !errors.As(err, &use) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
}

// The demo can see loss, duplicates and what was never confirmed.
func TestTallySeesLoss(t *testing.T) {
	var l tally
	body := func(n uint64) []byte {
		b := binary.BigEndian.AppendUint64(nil, n)
		return binary.BigEndian.AppendUint64(b, uint64(time.Now().UnixNano()))
	}
	for _, n := range []uint64{0, 1, 1, 3, 4} {
		if err := l.add(body(n), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	s := l.summary([]bool{true, true, true, false, true, true}, 7) // 2 and 5 are lost, 3 was never confirmed
	if s.Published != 5 || s.Handled != 4 || s.Lost != 2 || s.Duplicates != 1 || s.PeakWorkers != 7 {
		t.Errorf("summary: %+v", s)
	}
	if err := l.add([]byte("short"), time.Now()); err == nil {
		t.Error("a foreign message was counted")
	}
}

func TestPhasesCoverTheDuration(t *testing.T) {
	sum := 0.0
	for _, p := range demoPhases {
		sum += p.share
	}
	if sum < 0.999 || sum > 1.001 {
		t.Errorf("the phases' shares are %v together", sum)
	}
	if p := phaseAt(time.Minute, time.Minute); p.name != "over" {
		t.Errorf("after the end it is %q", p.name)
	}
	if p := phaseAt(0, time.Minute); p.name != "trickle" {
		t.Errorf("at the start it is %q", p.name)
	}
}

// TestDebt: what is due adds up, also where a late tick is stamped before the one before it.
func TestDebt(t *testing.T) {
	var d debt
	for i, c := range []struct {
		passed time.Duration
		want   uint64
	}{{time.Millisecond, 6}, {100 * time.Microsecond, 0}, {100 * time.Microsecond, 1}, {-2 * time.Millisecond, 0}, {time.Millisecond,
		0}, {2 * time.Millisecond, 6}} {
		if got := d.pay(6000, c.passed); got != c.want {
			t.Errorf("step %d: %d, want %d", i, got, c.want)
		}
	}
}

// TestLoadTriesAgain: what was perhaps not stored is published again; what is refused is not, and does not count as published.
func TestLoadTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &brokenPublisher{stored: map[string]int{}, fail: func(call, i int) error {
			switch {
			case call < 3 && i%2 == 1:
				return errors.New("not the leader")
			case call == 3 && i == 0:
				return broker.ErrRefused
			}
			return nil
		}}
		l := &load{publisher: b, topic: "t"}
		l.publish(t.Context(), 5, 10)
		stored := 0
		for _, ok := range l.confirmed() {
			if ok {
				stored++
			}
		}
		if stored != 9 || len(b.stored) != 9 || l.unknown != 1 || !errors.Is(l.failure, broker.ErrRefused) || len(l.confirmed()) != 15 {
			t.Errorf("%d stored, %d at the broker, %d unknown: %v", stored, len(b.stored), l.unknown, l.failure)
		}
	})
}

// TestLoadThatIsTooMuch: a broker that confirms slowly gets no batch that is larger the longer those before it took.
func TestLoadThatIsTooMuch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowPublisher{}
		l := &load{publisher: s, topic: "t", duration: time.Minute}
		if err := l.run(t.Context()); err != nil {
			t.Error(err)
		}
		if most := s.most.Load(); most == 0 || most > 600 {
			t.Errorf("up to %d messages at once, want 600 at most: a tenth of a second of the burst", most)
		}
	})
}

// A slowPublisher takes five seconds for whatever it is given, and remembers the most.
type slowPublisher struct{ most atomic.Int64 }

func (s *slowPublisher) Publish(_ context.Context, ms []broker.Outgoing) error {
	for {
		if most := s.most.Load(); int64(len(ms)) <= most || s.most.CompareAndSwap(most, int64(len(ms))) {
			break
		}
	}
	time.Sleep(5 * time.Second)
	return nil
}

func (*slowPublisher) Close(context.Context) error { return nil }
