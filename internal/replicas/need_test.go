package replicas_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/internal/replicas"
)

func TestNeed(t *testing.T) {
	minute, told := replicas.Settings{Drain: time.Minute}, replicas.Settings{Drain: time.Minute, PerReplica: 100}
	for name, c := range map[string]struct {
		f      replicas.Figures
		s      replicas.Settings
		want   float64
		active bool
		reason replicas.Reason
	}{
		"nothing":                      {replicas.Figures{}, told, 0, false, replicas.Idle},
		"next to nothing comes":        {replicas.Figures{In: 0.005, Each: 100}, told, 0, false, replicas.Idle},
		"arrivals":                     {replicas.Figures{In: 160, Each: 100}, told, 2, true, replicas.Load},
		"backlog, in a minute":         {replicas.Figures{Backlog: 9600, Each: 100}, told, 2, true, replicas.Load},
		"both":                         {replicas.Figures{In: 80, Backlog: 4800, Each: 100}, told, 2, true, replicas.Load},
		"one message":                  {replicas.Figures{Backlog: 1, Each: 100}, told, 1.0 / 60 / 80, true, replicas.Load},
		"only retries that wait":       {replicas.Figures{Later: 100000, Each: 100}, told, 1, true, replicas.Load},
		"nobody told, but a number":    {replicas.Figures{In: 160}, told, 2, true, replicas.Load},
		"who told is right":            {replicas.Figures{In: 160, Each: 200}, told, 1, true, replicas.Load},
		"nobody told, from zero":       {replicas.Figures{Backlog: 1e6, Members: 0}, minute, 1, true, replicas.Unmeasured},
		"nobody told, nobody asked":    {replicas.Figures{Backlog: 1e6, Members: -1}, minute, 1, true, replicas.Unmeasured},
		"nobody told, three are there": {replicas.Figures{Backlog: 1e6, Members: 3}, minute, 3, true, replicas.Unmeasured},
		"no durable":                   {replicas.Figures{Missing: true, Most: 1}, told, 1, true, replicas.Missing},
		"one of two is not there": {replicas.Figures{Missing: true, In: 800, Backlog: 96000, Each: 100, Members: 10}, told, 10,
			true, replicas.Missing},
		"more than partitions":           {replicas.Figures{In: 800, Each: 100, Most: 4}, told, 4, true, replicas.Bound},
		"more than helps":                {replicas.Figures{In: 800, Each: 100, Most: 12, Hold: 3}, told, 3, true, replicas.Hold},
		"a hold above what is asked for": {replicas.Figures{In: 160, Each: 100, Hold: 3}, told, 2, true, replicas.Load},
		"less than it seems":             {replicas.Figures{In: 160, Each: 100, Proved: 50}, told, 4, true, replicas.Load},
		"paused": {replicas.Figures{In: 800, Each: 100, Paused: true, Members: 2}, told, 2, true,
			replicas.Paused},
		"a breaker is open": {replicas.Figures{In: 40, Backlog: 96000, Each: 100, Open: true, Members: 2, Most: 12}, told, 2, true,
			replicas.Open},
		"it is, and fewer will do": {replicas.Figures{In: 160, Each: 100, Open: true, Members: 5}, told, 2, true, replicas.Load},
		"it is, and nothing to do": {replicas.Figures{Each: 100, Open: true, Members: 2}, told, 0, false, replicas.Idle},
		"it is, and nobody told":   {replicas.Figures{In: 40, Open: true, Members: 3}, minute, 3, true, replicas.Unmeasured},
		"a shared limit is used up": {replicas.Figures{In: 40, Backlog: 96000, Each: 100, Limited: true, Members: 2, Most: 12}, told,
			2, true, replicas.Limit},
		"it is, and fewer would do":   {replicas.Figures{In: 160, Each: 100, Limited: true, Members: 5}, told, 2, true, replicas.Load},
		"paused, and nothing to do":   {replicas.Figures{Paused: true, Members: 2, Each: 100}, told, 0, false, replicas.Idle},
		"the durable is paused":       {replicas.Figures{Held: 9600, Each: 100, Members: 2}, told, 2, true, replicas.Paused},
		"it is, and nobody was asked": {replicas.Figures{Held: 9600, Members: -1}, told, 1, true, replicas.Paused},
		"it is, from zero":            {replicas.Figures{Held: 9600}, told, 0, false, replicas.Paused},
		"one durable of two is":       {replicas.Figures{Held: 9600, In: 160, Each: 100, Members: 5}, told, 2, true, replicas.Load},
		"a short drain asks for more of them": {replicas.Figures{Backlog: 9600, Each: 100}, replicas.Settings{Drain: 30 * time.Second},
			4, true, replicas.Load},
	} {
		a := replicas.Need(c.f, c.s)
		if math.Abs(a.Replicas-c.want) > 1e-9 || a.Active != c.active || a.Reason != c.reason || a.Why == "" {
			t.Errorf("%s: %+v, want %v %v %v", name, a, c.want, c.active, c.reason)
		}
	}
}

// TestUntold: where processes answer that they do not have the consumer, the number stays for ever, and the answer says of what.
func TestUntold(t *testing.T) {
	wrong := replicas.Need(replicas.Figures{Backlog: 1e6, Without: 2}, replicas.Settings{Drain: time.Minute})
	if wrong.Reason != replicas.Unmeasured || !strings.Contains(wrong.Why, "2 of the addresses asked answer 404") {
		t.Errorf("two do not have the consumer: %+v", wrong)
	}
	beside := replicas.Need(replicas.Figures{Backlog: 1e6, Members: 1, Without: 2}, replicas.Settings{Drain: time.Minute})
	if strings.Contains(beside.Why, "404") {
		t.Errorf("another one has it: %+v", beside)
	}
}

// TestNeedHasAnEnd: who says by mistake that a process does next to nothing is asked for as many processes as can be said, and
// not for one.
func TestNeedHasAnEnd(t *testing.T) {
	for _, each := range []float64{1e-12, 1e-300, 5e-324} {
		a := replicas.Need(replicas.Figures{Known: true, In: 100, Backlog: 1000, Members: 1}, replicas.Settings{PerReplica: each,
			Drain: time.Minute})
		if a.Whole() != math.MaxInt32 || a.Replicas != math.MaxInt32 {
			t.Errorf("at %g each: %d, %g", each, a.Whole(), a.Replicas)
		}
	}
}

func TestWhole(t *testing.T) {
	for _, c := range []struct {
		a    replicas.Answer
		want int
	}{
		{replicas.Answer{}, 0},
		{replicas.Answer{Active: true}, 1},
		{replicas.Answer{Replicas: 0.2, Active: true}, 1},
		{replicas.Answer{Replicas: 3, Active: true}, 3},
		{replicas.Answer{Replicas: 3.0000000000001, Active: true}, 3},
		{replicas.Answer{Replicas: 3.1, Active: true}, 4},
	} {
		if got := c.a.Whole(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.a, got, c.want)
		}
	}
}
