package consumer_test

import (
	"runtime"
	"slices"
	"sync"
	"weak"
)

// kept knows things, keeps none of them in memory, and says how many are there still: of bytes, by where they begin.
type kept[T any] struct {
	mu  sync.Mutex
	all []weak.Pointer[T]
}

func (k *kept[T]) add(p *T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, weak.Make(p))
}

// once is add for one that may have been added before.
func (k *kept[T]) once(p *T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := weak.Make(p); !slices.Contains(k.all, w) {
		k.all = append(k.all, w)
	}
}

// count says how many there were, and how many of these are in memory still.
func (k *kept[T]) count() (all, kept int) {
	runtime.GC()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.all {
		if p.Value() != nil {
			kept++
		}
	}
	return len(k.all), kept
}
