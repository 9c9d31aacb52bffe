package program

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// A view shows the demo while it runs: on a terminal a picture that is redrawn, elsewhere a line per second.
type view struct {
	out   io.Writer
	live  bool
	drawn int // lines of the picture on the screen

	mu       sync.Mutex
	decision string
	peak     int
}

func newView(f *os.File) *view { return &view{out: f, live: isTerminal(f)} }

// observe keeps the last decision of the pool.
func (v *view) observe(e consumer.Event) {
	d, ok := e.(consumer.Scaled)
	if !ok {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.decision = fmt.Sprintf("%d → %d: %s", d.From, d.Target, d.Why())
	v.peak = max(v.peak, d.Target)
}

func (v *view) peakWorkers() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.peak
}

// run shows the state until ctx ends.
func (v *view) run(ctx context.Context, c *consumer.Consumer, l *load, t *tally) {
	every := time.Second
	if v.live {
		every = 200 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	start := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			v.show(now.Sub(start), every, c.Stats(), l, t)
		}
	}
}

func (v *view) show(at, every time.Duration, s consumer.Stats, l *load, t *tally) {
	n, p50, p99 := t.since()
	phase := "start"
	if p := l.phase.Load(); p != nil {
		phase = *p
	}
	lag := "unknown"
	if s.Lag.Waiting >= 0 {
		lag = fmt.Sprint(s.Lag.Waiting)
	}
	v.mu.Lock()
	decision := v.decision
	v.peak = max(v.peak, s.Pool.Live)
	v.mu.Unlock()
	rate := float64(n) / every.Seconds()
	if !v.live {
		fmt.Fprintf(v.out, "%5.1fs %-8s workers %3d busy %3d in_flight %5d lag %6s rate %6.0f/s p50 %6.1f ms p99 %6.1f ms  %s\n",
			at.Seconds(), phase, s.Pool.Live, s.Pool.Busy, s.InFlight, lag, rate, inMS(p50), inMS(p99), decision)
		return
	}
	v.draw(picture(columns(v.out), [][]string{
		{"longshore demo", fmt.Sprintf("%5.1f s", at.Seconds()), "load: " + phase},
		{fmt.Sprintf("workers    %4d", s.Pool.Live), fmt.Sprintf("busy %4d", s.Pool.Busy),
			bar(s.Pool.Live, demoWorkers, columns(v.out)-30)},
		{fmt.Sprintf("in flight  %4d", s.InFlight), fmt.Sprintf("lag  %6s", lag)},
		{fmt.Sprintf("handled    %6.0f/s", rate), fmt.Sprintf("p50 %.1f ms", inMS(p50)), fmt.Sprintf("p99 %.1f ms", inMS(p99))},
	}, "decision   "+decision))
}

// picture lays out rows of figures and a sentence. No line is wider than the terminal, or what is drawn next would not begin
// where this did.
func picture(columns int, rows [][]string, sentence string) (lines []string) {
	for _, row := range rows {
		lines = append(lines, fold(columns, "   ", row...)...)
	}
	lines = append(lines, fold(columns, " ", strings.Split(sentence, " ")...)...)
	for i := range lines {
		lines[i] = cut(strings.TrimRight(lines[i], " "), columns)
	}
	return lines
}

// draw replaces the picture drawn before, which may have had more lines.
func (v *view) draw(lines []string) {
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn)
	}
	b.WriteString("\r\x1b[J")
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	v.drawn = len(lines)
	fmt.Fprint(v.out, b.String())
}

// bar draws n of limit, at most 32 characters wide; where there is room for fewer than 8, none.
func bar(n, limit, room int) string {
	width := min(32, room)
	if width < 8 {
		return ""
	}
	full := min(width, n*width/limit)
	return strings.Repeat("█", full) + strings.Repeat("·", width-full)
}
