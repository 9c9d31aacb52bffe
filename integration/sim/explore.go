package sim

import (
	"regexp"
	"sync"
	"time"
)

// An Exploration runs schedules of many seeds, each in all worlds, on several children at once.
type Exploration struct {
	// Binary and Env are the Runners'.
	Binary string
	Env    []string
	// Kinds of worlds.
	Kinds []Kind
	// From is the first seed; Seeds is how many in each world; 0: until For is over, and then fewer in heavy worlds.
	From, Seeds uint64
	For         time.Duration
	// Children at once.
	Children int
	// Ran is told of each run, by one goroutine at a time. false ends the exploration.
	Ran func(s Schedule, res Result) (more bool)
}

// Explore returns when all is done.
func (e Exploration) Explore() {
	jobs, over := make(chan Schedule), make(chan struct{})
	var mu sync.Mutex
	var end sync.Once
	var children sync.WaitGroup
	for range e.Children {
		children.Go(func() {
			r := Runner{Binary: e.Binary, Env: e.Env}
			defer r.Close()
			for s := range jobs {
				res := r.Try(s, false)
				mu.Lock()
				more := e.Ran(s, res)
				mu.Unlock()
				if !more {
					end.Do(func() { close(over) })
				}
			}
		})
	}
	e.deal(jobs, over)
	close(jobs)
	children.Wait()
}

// deal hands out the schedules.
func (e Exploration) deal(jobs chan<- Schedule, over <-chan struct{}) {
	until := make(<-chan time.Time)
	if e.For > 0 {
		until = time.After(e.For)
	}
	for n := uint64(0); e.Seeds == 0 || n < e.Seeds; n++ {
		for _, k := range e.Kinds {
			if e.Seeds == 0 && n%uint64(k.Heavy) != 0 {
				continue
			}
			select {
			case jobs <- Plan(k, e.From+n):
			case <-over:
				return
			case <-until:
				return
			}
		}
	}
}

// Likeness is what two findings of the same mistake have in common: their words, without the numbers and names.
func Likeness(finding string) string {
	return numbers.ReplaceAllString(finding, "#")
}

var numbers = regexp.MustCompile(`-?\d+(\.\d+)?(ns|µs|ms|m|s)?|\bk\d+\b`)
