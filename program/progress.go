package program

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// A progress shows how many of how many: a bar on a terminal, elsewhere a line every 5 s.
type progress struct {
	out   io.Writer
	bar   *progressbar.ProgressBar // nil: lines
	count int64
	next  time.Time
}

const (
	progressEvery = 5 * time.Second
	// narrow is a terminal on which a bar with all its words would break.
	narrow = 60
)

// newProgress shows it on w. count 0: nobody knows of how many.
func newProgress(w io.Writer, count int64) *progress {
	p := &progress{out: w, count: count, next: time.Now().Add(progressEvery)}
	if isTerminal(w) {
		most := count
		if most == 0 {
			most = -1
		}
		options := []progressbar.Option{
			progressbar.OptionSetWriter(raw(w)), progressbar.OptionShowCount(), progressbar.OptionThrottle(100 * time.Millisecond),
			progressbar.OptionFullWidth(),
		}
		if columns(w) < narrow {
			options = append(options, progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false))
		} else {
			options = append(options, progressbar.OptionSetDescription("confirmed"))
		}
		p.bar = progressbar.NewOptions64(most, options...)
	}
	return p
}

func (p *progress) set(n int64) {
	if p.bar != nil {
		_ = p.bar.Set64(n)
		return
	}
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(progressEvery)
	if p.count > 0 {
		fmt.Fprintf(p.out, "confirmed %d of %d\n", n, p.count)
		return
	}
	fmt.Fprintf(p.out, "confirmed %d\n", n)
}

// close ends the bar's line.
func (p *progress) close() {
	if p.bar != nil {
		_ = p.bar.Exit()
		fmt.Fprintln(p.out)
	}
}
