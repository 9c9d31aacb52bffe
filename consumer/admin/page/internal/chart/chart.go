// Package chart lays lines over time out as shapes, for a page to draw as SVG. It has no clock and does no I/O: the same chart is
// always the same picture.
package chart

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Chart is what is to be drawn.
type Chart struct {
	// From and To bound the time that is shown.
	From, To time.Time
	// Times are those of the values, ascending.
	Times  []time.Time
	Series []Series
	// Marks are moments, drawn as ticks that tell their text.
	Marks []Mark
	// Log draws the values on a logarithmic scale; what is not above 0 is then unknown.
	Log bool
	// Format writes a value. Defaults to Number.
	Format func(float64) string
}

// A Series is one line.
type Series struct {
	Name string
	// Class is for the style sheet.
	Class string
	// Values belong to Chart.Times. NaN is unknown: the line has a gap there.
	Values []float64
	// Area fills what is below the line.
	Area bool
}

// A Mark is a moment.
type Mark struct {
	At    time.Time
	Class string
	Text  string
}

// A Picture is a chart as shapes, in a box of Width and Height.
type Picture struct {
	Width, Height            int
	Left, Top, Right, Bottom float64 // of the plot within
	X, Y                     []Tick
	Lines                    []Line
	Marks                    []Flag
}

// A Tick is a place on an axis.
type Tick struct {
	At   float64
	Text string
}

// A Line is a series as paths of SVG. Last is its last known value, Most its greatest, as text.
type Line struct {
	Name, Class, Path, Area string
	Last, Most              string
}

// A Flag is a mark at its place.
type Flag struct {
	At    float64
	Class string
	Text  string
}

// Space around the plot, for the texts of the axes.
const (
	leftSpace, rightSpace = 44, 6
	topSpace, bottomSpace = 14, 18
)

// Draw lays a chart out.
func Draw(c Chart, width, height int) Picture {
	p := Picture{
		Width: width, Height: height,
		Left: leftSpace, Top: topSpace, Right: float64(width - rightSpace), Bottom: float64(height - bottomSpace),
	}
	if c.Format == nil {
		c.Format = Number
	}
	y := scaleOf(c)
	p.Y = y.ticks(p, c.Format)
	p.X = timeTicks(c, p)
	for _, s := range c.Series {
		p.Lines = append(p.Lines, p.line(c, s, y))
	}
	for _, m := range c.Marks {
		if !m.At.Before(c.From) && !m.At.After(c.To) {
			p.Marks = append(p.Marks, Flag{round(p.x(c, m.At)), m.Class, m.Text})
		}
	}
	return p
}

// Spark lays a chart out without axes.
func Spark(c Chart, width, height int) Picture {
	p := Picture{Width: width, Height: height, Left: 0, Top: 1, Right: float64(width), Bottom: float64(height) - 1}
	if c.Format == nil {
		c.Format = Number
	}
	y := scaleOf(c)
	for _, s := range c.Series {
		p.Lines = append(p.Lines, p.line(c, s, y))
	}
	return p
}

func (p *Picture) x(c Chart, at time.Time) float64 {
	whole := c.To.Sub(c.From)
	if whole <= 0 {
		return p.Left
	}
	return p.Left + (p.Right-p.Left)*float64(at.Sub(c.From))/float64(whole)
}

// line writes a series' paths: one piece for each stretch of known values.
func (p *Picture) line(c Chart, s Series, y scale) Line {
	l := Line{Name: s.Name, Class: s.Class, Last: "unknown", Most: "unknown"}
	var path, area strings.Builder
	begin, last := math.NaN(), 0.0 // of the piece at hand
	end := func() {
		if s.Area && !math.IsNaN(begin) {
			fmt.Fprintf(&area, "L%s %sL%s %sZ", short(last), short(p.Bottom), short(begin), short(p.Bottom))
		}
		begin = math.NaN()
	}
	most := math.Inf(-1)
	for i, at := range c.Times[:min(len(c.Times), len(s.Values))] {
		v := s.Values[i]
		if math.IsNaN(v) || math.IsInf(v, 0) || c.Log && v <= 0 || at.Before(c.From) || at.After(c.To) {
			end()
			continue
		}
		px, py := p.x(c, at), y.at(*p, v)
		step := "L"
		if math.IsNaN(begin) {
			begin, step = px, "M"
		}
		point := step + short(px) + " " + short(py)
		path.WriteString(point)
		if step == "M" {
			path.WriteString("h0") // a value between two unknown ones is a dot
		}
		if s.Area {
			area.WriteString(point)
		}
		last = px
		l.Last, most = c.Format(v), max(most, v)
	}
	end()
	if !math.IsInf(most, -1) {
		l.Most = c.Format(most)
	}
	l.Path, l.Area = path.String(), area.String()
	return l
}

// round keeps one decimal, short writes it.
func round(f float64) float64 { return math.Round(f*10) / 10 }

func short(f float64) string { return strconv.FormatFloat(round(f), 'f', -1, 64) }

// Number writes a value for people: 12,345, 1.5, 0.04.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "unknown"
	case a >= 100 || v == math.Trunc(v):
		return Whole(int64(math.Round(v)))
	case a >= 1:
		return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// Whole writes a number with commas: 12,345.
func Whole(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
