package chart_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer/admin/page/internal/chart"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// TestLine: values stand where they belong, and a gap where one is unknown.
func TestLine(t *testing.T) {
	p := chart.Draw(chart.Chart{
		From: at(0), To: at(100), Times: []time.Time{at(0), at(50), at(75), at(100)},
		Series: []chart.Series{{Name: "lag", Class: "a", Area: true, Values: []float64{0, 40, math.NaN(), 80}}},
	}, 150, 132)
	l := p.Lines[0]
	// the plot is 44..144 by 14..114, and 80 is its top
	if want := "M44 114h0L94 64M144 14h0"; l.Path != want {
		t.Errorf("path %q, want %q", l.Path, want)
	}
	if want := "M44 114L94 64L94 114L44 114ZM144 14L144 114L144 114Z"; l.Area != want {
		t.Errorf("area %q, want %q", l.Area, want)
	}
	if l.Last != "80" || l.Most != "80" {
		t.Errorf("%+v", l)
	}
	var ys []string
	for _, y := range p.Y {
		ys = append(ys, y.Text)
	}
	if got := strings.Join(ys, " "); got != "0 20 40 60 80" {
		t.Errorf("ticks %q", got)
	}
}

// TestTicks: of values and of times, round ones, a handful. A time that would be cut off at the edge is not written.
func TestTicks(t *testing.T) {
	texts := func(ticks []chart.Tick) string {
		var all []string
		for _, one := range ticks {
			all = append(all, one.Text)
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct {
		values []float64
		log    bool
		want   string
	}{
		{nil, false, "0 0.5 1"}, {[]float64{0}, false, "0 0.5 1"}, {[]float64{3}, false, "0 1 2 3"}, {[]float64{1234}, false,
			"0 500 1,000 1,500"},
		{[]float64{5e-324}, false, "0 0.5 1"}, {[]float64{0.02, 0.01}, false, "0 0.005 0.01 0.015 0.02"}, {nil, true,
			"1 10"}, {[]float64{0, 2, 3000}, true, "1 10 100 1,000 10,000"},
	} {
		times := make([]time.Time, len(c.values))
		for i := range times {
			times[i] = at(i)
		}
		p := chart.Draw(chart.Chart{From: at(0), To: at(900), Times: times, Log: c.log, Series: []chart.Series{{Values: c.values}}},
			400, 200)
		if got := texts(p.Y); got != c.want {
			t.Errorf("%v, log %v: %q, want %q", c.values, c.log, got, c.want)
		}
	}
	for _, c := range []struct {
		length time.Duration
		want   string
	}{
		{15 * time.Minute, "12:03 12:06 12:09 12:12 "}, {3 * time.Minute, "12:00:30 12:01:00 12:01:30 12:02:00 12:02:30 "},
		{24 * time.Hour, "16:00 20:00 00:00 04:00 08:00 "}, {0, ""},
	} {
		p := chart.Draw(chart.Chart{From: noon.Add(time.Second), To: noon.Add(c.length + time.Second)}, 400, 200)
		if got := texts(p.X); c.length > 0 && got != c.want {
			t.Errorf("%v: %q, want %q", c.length, got, c.want)
		}
	}
}

// TestMarks: those within the time that is shown.
func TestMarks(t *testing.T) {
	p := chart.Draw(chart.Chart{From: at(0), To: at(100),
		Marks: []chart.Mark{{at(-1), "up", "before"}, {at(50), "up", "1 → 2"}, {at(101), "down", "after"}}}, 150, 132)
	if len(p.Marks) != 1 || p.Marks[0].At != 94 || p.Marks[0].Text != "1 → 2" {
		t.Errorf("%+v", p.Marks)
	}
}

// TestAnyChart: whatever the values are, all that is drawn is within the box, and paths are made of numbers.
func TestAnyChart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		odd := rapid.SampledFrom([]float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-300, 1e300, 5e-324, math.MaxFloat64})
		values := rapid.SliceOfN(rapid.OneOf(rapid.Float64(), odd, rapid.Float64Range(0, 1000)), 0, 50).Draw(t, "values")
		c := chart.Chart{From: at(0), To: at(rapid.IntRange(-5, 100).Draw(t, "to")), Log: rapid.Bool().Draw(t, "log")}
		for i := range values {
			c.Times = append(c.Times, at(i*3-5))
		}
		c.Series = []chart.Series{{Values: values, Area: true}}
		p := chart.Draw(c, 460, 190)
		for _, path := range []string{p.Lines[0].Path, p.Lines[0].Area} {
			for _, f := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("MLZh ", r) }) {
				x, err := strconv.ParseFloat(f, 64)
				if err != nil || x < 0 || x > 460 {
					t.Fatalf("%q in %q", f, path)
				}
			}
		}
		if len(p.Y) < 2 || len(p.Y) > 12 {
			t.Fatalf("%d ticks: %+v", len(p.Y), p.Y)
		}
		for _, y := range p.Y {
			if !(y.At >= p.Top-0.1 && y.At <= p.Bottom+0.1) {
				t.Fatalf("tick %+v", y)
			}
		}
	})
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 7: "7", 1234567: "1,234,567", -1234: "-1,234", 99.96: "100", 1.25: "1.3",
		0.04: "0.04", 123.4: "123"} {
		if got := chart.Number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
