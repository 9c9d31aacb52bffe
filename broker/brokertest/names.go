package brokertest

import (
	"maps"
	"slices"
	"sync"
)

// names are the Message.ID of each message that was handed out, by our id, and its time.
type names struct {
	mu    sync.Mutex
	of    map[string]string
	times map[string]int64
}

// timed returns the time that the message said before, where that was another one.
func (n *names) timed(id string, nanos int64) (was int64, differs bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.times == nil {
		n.times = make(map[string]int64)
	}
	was, known := n.times[id]
	n.times[id] = nanos
	return was, known && was != nanos
}

// note returns what the message said before, where that was something else.
func (n *names) note(id, name string) (was string, differs bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, known := n.of[id]
	n.of[id] = name
	return was, known && was != name
}

// ids are those that were handed out.
func (n *names) ids() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.of))
}
