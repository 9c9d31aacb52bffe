package contact

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

var errAway = errors.New("connection refused")

// A step is what happens at a time after the start.
type step struct {
	at   time.Duration
	what string
}

func TestContact(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for name, tc := range map[string]struct {
		steps []step
		want  []string
	}{
		"first contact":    {[]step{{0, "found"}, {s, "found"}}, []string{"0s up"}},
		"begins, and ends": {[]step{{0, "found"}, {s, "lost"}, {2 * s, "found"}}, []string{"0s up", "1s down", "2s up"}},
		"away at first":    {[]step{{0, "lost"}, {ms, "lost"}, {s, "found"}}, []string{"0s down", "1s up"}},
		"again within a second": {[]step{{0, "lost"}, {100 * ms, "found"}, {200 * ms, "lost"}, {900 * ms, "late"}, {s, "late"}},
			[]string{"0s down", "100ms up", "1s down"}},
		"again, by the next failure": {[]step{{0, "lost"}, {100 * ms, "found"}, {200 * ms, "lost"}, {1100 * ms, "lost"}},
			[]string{"0s down", "100ms up", "1.1s down"}},
		"again, and over before a Due": {[]step{{0, "lost"}, {100 * ms, "found"}, {200 * ms, "lost"}, {300 * ms, "found"},
			{2 * s, "late"}}, []string{"0s down", "100ms up"}},
		"an answer from before":    {[]step{{0, "lost"}, {s, "stale"}, {2 * s, "found"}}, []string{"0s down", "2s up"}},
		"away at first, and stale": {[]step{{s, "lost"}, {2 * s, "stale"}}, []string{"1s down"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := play(tc.steps); !slices.Equal(got, tc.want) {
				t.Errorf("told %v, want %v", got, tc.want)
			}
		})
	}
}

// TestBackoff: a failure ten times a second for five minutes.
func TestBackoff(t *testing.T) {
	var steps []step
	for i := range 3000 {
		steps = append(steps, step{time.Duration(i) * 100 * time.Millisecond, "lost"})
	}
	want := []string{"0s down", "2s down", "6s down", "14s down", "30s down", "1m2s down", "2m2s down", "3m2s down", "4m2s down"}
	if got := play(steps); !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}

func play(steps []step) (told []string) {
	var c Contact
	zero := time.Unix(1_000_000, 0)
	for _, x := range steps {
		now := zero.Add(x.at)
		say := ""
		switch x.what {
		case "lost":
			if c.Lost(now, now, errAway) {
				say = "down"
			}
		case "late":
			if c.Late(now) != nil {
				say = "down"
			}
		case "found":
			if c.Found(now) {
				say = "up"
			}
		case "stale":
			if c.Found(zero) {
				say = "up"
			}
		}
		if say != "" {
			told = append(told, fmt.Sprint(x.at, " ", say))
		}
	}
	return told
}
