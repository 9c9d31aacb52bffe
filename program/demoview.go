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
	"golang.org/x/term"
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

func newView(f *os.File) *view { return &view{out: f, live: term.IsTerminal(int(f.Fd()))} }

// observe keeps the last decision of the pool.
func (v *view) observe(e consumer.Event) {
	d, ok := e.(consumer.Scaled)
	if !ok {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.decision = fmt.Sprintf("%d → %d: %s", d.From, d.Target, d.Reason)
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
	v.draw([]string{
		fmt.Sprintf("longshore demo   %5.1f s   load: %s", at.Seconds(), phase),
		fmt.Sprintf("workers    %4d   busy %4d   %s", s.Pool.Live, s.Pool.Busy, bar(s.Pool.Live, 128)),
		fmt.Sprintf("in flight  %4d   lag  %6s", s.InFlight, lag),
		fmt.Sprintf("handled    %6.0f/s   p50 %.1f ms   p99 %.1f ms", rate, inMS(p50), inMS(p99)),
		"decision   " + decision,
	})
}

// draw replaces the picture drawn before.
func (v *view) draw(lines []string) {
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn)
	}
	for _, line := range lines {
		b.WriteString("\x1b[2K" + line + "\n")
	}
	v.drawn = len(lines)
	fmt.Fprint(v.out, b.String())
}

// bar draws n of limit, 32 characters wide.
func bar(n, limit int) string {
	const width = 32
	full := min(width, n*width/limit)
	return strings.Repeat("█", full) + strings.Repeat("·", width-full)
}
