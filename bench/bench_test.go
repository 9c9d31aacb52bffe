package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/integration/kafkad"
)

// TestEverySystemRuns measures each once, in short: it proves that the benchmark works, not how fast anything is.
// One Kafka serves all groups: a start of one takes longer than what most of them measure here.
func TestEverySystemRuns(t *testing.T) {
	if os.Getenv("KAFKA_BROKERS") == "" {
		k, err := kafkad.Launch(kafkad.Config{})
		if err == nil {
			defer k.Close()
			t.Setenv("KAFKA_BROKERS", strings.Join(k.Brokers(), ","))
		} else if !errors.Is(err, kafkad.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			most := 64 * 100
			if full := g.longest(); full < most { // what is few is slow, or large
				most = max(chunkSize, full/50)
			}
			run := func(url string) {
				median := map[string]sample{}
				for _, s := range g.systems {
					n := most
					if g.server == nil {
						n = min(most, max(chunkSize, s.n/50))
					}
					x := s.run(n, url)
					if x.WallNS <= 0 {
						t.Errorf("%s: measured %+v", s.name, x)
					}
					median[s.name] = x
				}
				for _, f := range g.figures(median) {
					if f.name == "" || f.value != f.value {
						t.Errorf("figure %q is %v", f.name, f.value)
					}
				}
			}
			if g.server == nil {
				run("")
				return
			}
			err := g.server(most, run)
			if errors.Is(err, kafkad.ErrUnavailable) && os.Getenv("LONGSHORE_REAL") == "" {
				t.Skipf("NO REAL BROKER: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// longest is the full length of the system that has the longest.
func (g group) longest() (n int) {
	for _, s := range g.systems {
		n = max(n, s.n)
	}
	return n
}

func TestFigure(t *testing.T) {
	for want, f := range map[string]figure{
		"a 0.2 <=0.25 ok":    atMost("a", 0.2, 0.25),
		"a 0.3 <=0.25 short": atMost("a", 0.3, 0.25),
		"a 1.01 >=1 ok":      atLeast("a", 1.01, 1),
		"a 0.99 >=1 short":   atLeast("a", 0.99, 1),
		"a 0 <=0 ok":         atMost("a", 0, 0),
		"a 123457 - ok":      show("a", 123456.7),
	} {
		if got := f.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestMedians(t *testing.T) {
	got := medians([][]figure{{atMost("a", 3, 2), show("b", 1)}, {atMost("a", 1, 2), show("b", 3)},
		{atMost("a", 2, 2), show("b", 2)}})
	a, b := atMost("a", 2, 2), show("b", 2)
	a.low, a.high, b.low, b.high = 1, 3, 1, 3
	if got[0] != a || got[1] != b {
		t.Errorf("got %+v", got)
	}
}

func TestUnknownGroupIsRefused(t *testing.T) {
	var out strings.Builder
	if err := measureAll(&out, "nothing", 1, 1, false); err == nil {
		t.Errorf("no error, printed %q", out.String())
	}
}
