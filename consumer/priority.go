package consumer

import (
	"math"

	"github.com/longshoremq/longshore/broker"
)

// An Input is one of several sources of a consumer.
type Input struct {
	// Source as in Config. Required.
	Source broker.Source `yaml:"-"`
	// Weight is how many hand-offs of this source's messages are made in a row while those of others wait, too. Not used with
	// Config.Strict. Defaults to 1.
	Weight int `yaml:"weight" want:"0.."`
}

// A Priority tells important messages of a source from others. Those wait for a worker in lines of their own. It orders what has
// been received and waits here, at most the budget: what is still with the broker comes in the broker's order, so that an
// important message behind a million others waits for these. Where that matters give it a topic, and a source, of its own.
type Priority struct {
	// Levels are the weights of the levels, as Input.Weight; two at least. With Config.Strict their order alone counts.
	Levels []int `yaml:"-"`
	// Of says which of the Levels a message belongs to; what is below 0 counts as the first, what is too large, or panics
	// (Panicked), as the last. It is called several times for a message, by several goroutines, and must be quick. What it says may
	// change meanwhile. Required.
	Of func(*Message) int `yaml:"-"`
}

// inputs are the sources, however they were given.
func (c Config) inputs() []Input {
	if len(c.Sources) > 0 {
		return c.Sources
	}
	return []Input{{Source: c.Source}}
}

// levels is how many classes each source has.
func (c Config) levels() int {
	if c.Priority == nil {
		return 1
	}
	return len(c.Priority.Levels)
}

// product is a*b, or the largest number where that is more. Both are at least 1.
func product(a, b int) int {
	if a > math.MaxInt/b {
		return math.MaxInt
	}
	return a * b
}

// weights are those of the pool's classes: of each source, each level.
func (c Config) weights() (all []int) {
	for _, in := range c.inputs() {
		for level := range c.levels() {
			w := max(1, in.Weight)
			if c.Priority != nil {
				w = product(w, c.Priority.Levels[level])
			}
			all = append(all, w)
		}
	}
	return all
}
