package page

import (
	"fmt"
	"math"
	"time"

	"github.com/longshoremq/longshore/consumer/admin/page/internal/chart"
)

// The box of a chart, in pixels where it is as wide as on a telephone.
const chartWidth, chartHeight = 460, 190

// A Chart is a picture with what a reader of screens is told instead of it.
type Chart struct {
	ID, Title string
	chart.Picture
	// Says is the picture in a sentence.
	Says string
	// Head and Rows are its figures as a table, a row for each of about fifteen moments.
	Head []string
	Rows []chartRow
}

type chartRow struct {
	At    string
	Cells []string
}

// charts draws a consumer's history.
func charts(w *watched, s span, now time.Time) []Chart {
	cols := w.history.columns(s, now)
	decisions, _ := w.diary.newest(keptDecisions, 0)
	base := chart.Chart{From: now.Add(-s.length), To: now}
	for _, x := range cols {
		base.Times = append(base.Times, x.at)
	}
	line := func(name, class string, of func(sample) float64) chart.Series {
		l := chart.Series{Name: name, Class: class}
		for _, x := range cols {
			l.Values = append(l.Values, of(x))
		}
		return l
	}
	make := func(id, title string, change func(*chart.Chart), series ...chart.Series) Chart {
		c := base
		c.Series = series
		if change != nil {
			change(&c)
		}
		return asChart(id, title, s, c)
	}
	busy := line("busy", "b", func(x sample) float64 { return x.busy })
	busy.Area = true
	all := []Chart{
		make("rate", "Messages a second", nil,
			line("handled", "a", func(x sample) float64 { return x.handled }), line("skipped", "b",
				func(x sample) float64 { return x.skipped }), line("failed", "bad", func(x sample) float64 { return x.failed })),
		make("lag", "Waiting at the broker", nil, line("waiting", "a", func(x sample) float64 { return x.lag })),
		make("workers", "Workers, with a mark for each decision", func(c *chart.Chart) { c.Marks = marks(decisions) },
			busy, line("workers", "a", func(x sample) float64 { return x.live }), line("most allowed", "c",
				func(x sample) float64 { return x.limit })),
	}
	if w.sources.Times != nil {
		all = append(all, make("times", "Handler time", func(c *chart.Chart) { c.Log, c.Format = true, milliseconds },
			line("median", "a", func(x sample) float64 { return x.p50 }), line("99 of 100 below", "bad",
				func(x sample) float64 { return x.p99 })))
	}
	return all
}

// marks are decisions as a chart shows them: where they were made, which way, and why.
func marks(decisions []Decision) (list []chart.Mark) {
	for _, d := range decisions {
		class := "up"
		if d.To < d.From {
			class = "down"
		}
		list = append(list, chart.Mark{At: d.At, Class: class,
			Text: fmt.Sprintf("%s: %d → %d, %s", clock(d.At), d.From, d.To, plain(d.Why, fieldBytes))})
	}
	return list
}

// milliseconds writes a handler's time.
func milliseconds(ms float64) string {
	if ms >= 1000 {
		return chart.Number(ms/1000) + " s"
	}
	return chart.Number(ms) + " ms"
}

// asChart draws, and writes the same in words.
func asChart(id, title string, s span, c chart.Chart) Chart {
	v := Chart{ID: id, Title: title, Picture: chart.Draw(c, chartWidth, chartHeight), Says: title + ", " + s.Title + "."}
	format := c.Format
	if format == nil {
		format = chart.Number
	}
	for i, l := range v.Lines {
		v.Head = append(v.Head, c.Series[i].Name)
		v.Says += fmt.Sprintf(" %s: now %s, at most %s.", l.Name, l.Last, l.Most)
	}
	if n := len(v.Marks); n > 0 {
		v.Says += fmt.Sprintf(" %d decisions; they are in the table of decisions.", n)
	}
	step := max(1, len(c.Times)/15)
	for i := len(c.Times) - 1; i >= 0; i -= step {
		row := chartRow{At: c.Times[i].Local().Format("15:04:05")}
		for _, one := range c.Series {
			text := "unknown"
			if x := one.Values[i]; !math.IsNaN(x) {
				text = format(x)
			}
			row.Cells = append(row.Cells, text)
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// spark is a consumer's rate as a small line: what is skipped is done, too.
func spark(w *watched, now time.Time) chart.Picture {
	cols := w.history.columns(spans[0], now)
	c := chart.Chart{From: now.Add(-spans[0].length), To: now, Series: []chart.Series{{Name: "handled or skipped", Class: "a"}}}
	for _, x := range cols {
		c.Times, c.Series[0].Values = append(c.Times, x.at), append(c.Series[0].Values, x.handled+x.skipped)
	}
	return chart.Spark(c, 120, 26)
}
