package chart

import (
	"math"
	"time"
)

// A scale says where a value stands between bottom and top.
type scale struct {
	low, high float64
	step      float64 // between ticks; a factor where log
	log       bool
}

// What is below least is drawn as 0, and what is above most at the top: beyond these a float has no room for round steps.
const least, most = 1e-9, 1e300

// maxTicks of an axis, whatever its values are.
const maxTicks = 12

// scaleOf finds round bounds around all values. A linear scale begins at 0.
func scaleOf(c Chart) scale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range c.Series {
		for _, v := range s.Values {
			if math.IsNaN(v) || math.IsInf(v, 0) || c.Log && v <= 0 {
				continue
			}
			low, high = min(low, v), max(high, v)
		}
	}
	if c.Log {
		return logScale(low, high)
	}
	if !(high > least) {
		high = 1
	}
	high = min(high, most)
	step := roundStep(high / 4)
	return scale{low: 0, high: step * math.Ceil(high/step-1e-9), step: step}
}

// logScale spans whole powers of ten, at least one.
func logScale(low, high float64) scale {
	if math.IsInf(high, -1) {
		low, high = 1, 10
	}
	from, to := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	if to <= from {
		to = from + 1
	}
	return scale{low: from, high: to, step: math.Ceil((to - from) / 5), log: true}
}

// roundStep is the next of 1, 2, 5, 10, 20, … that is no smaller.
func roundStep(v float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*ten >= v*(1-1e-9) {
			return f * ten
		}
	}
	return 10 * ten
}

// at is where a value is drawn.
func (s scale) at(p Picture, v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	share := (v - s.low) / (s.high - s.low)
	return p.Bottom - min(1, max(0, share))*(p.Bottom-p.Top)
}

func (s scale) ticks(p Picture, format func(float64) string) (ticks []Tick) {
	for i := range maxTicks {
		v := s.low + float64(i)*s.step
		if v > s.high+s.step/1e6 {
			break
		}
		if s.log {
			v = math.Pow(10, v)
		}
		ticks = append(ticks, Tick{round(s.at(p, v)), format(v)})
	}
	return ticks
}

// timeSteps are between the ticks of the time axis.
var timeSteps = []time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 3 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 4 * time.Hour,
	12 * time.Hour, 24 * time.Hour,
}

// letterWidth is about how wide a digit of an axis is.
const letterWidth = 6.5

// timeTicks are at round times, about five of them. One whose text would be cut off at the edge has none.
func timeTicks(c Chart, p Picture) (ticks []Tick) {
	whole := c.To.Sub(c.From)
	if whole <= 0 {
		return nil
	}
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if whole/s <= 6 {
			step = s
			break
		}
	}
	layout := "15:04"
	if step < time.Minute {
		layout = "15:04:05"
	}
	for at := roundTime(c.From, step); !at.After(c.To); at = at.Add(step) {
		if at.Before(c.From) {
			continue
		}
		tick := Tick{round(p.x(c, at)), at.Format(layout)}
		if tick.At+letterWidth*float64(len(tick.Text))/2 > float64(p.Width) {
			tick.Text = ""
		}
		ticks = append(ticks, tick)
	}
	return ticks
}

// roundTime rounds down by the clock of the time's zone, so that ticks of four hours are at 0, 4, 8 o'clock there.
func roundTime(t time.Time, step time.Duration) time.Time {
	_, zone := t.Zone()
	offset := time.Duration(zone) * time.Second
	return t.Add(offset).Truncate(step).Add(-offset)
}
