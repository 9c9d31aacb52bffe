package kit

// Finished is how many finished messages an adapter remembers at least, where it cannot know whether the broker has written their
// settles down; see Redeliveries in package broker.
const Finished = 8192

// Recent remembers the last n keys that were put, each with a value: finished messages, by what names them beyond a recreation of
// the stream; runs of what was given back. It is not safe for concurrent use.
type Recent[K comparable, V any] struct {
	n    int
	m    map[K]V
	ring []K // in the order in which they were put
	next int // the oldest, once the ring is full
}

// NewRecent makes one; n is at least 1. Memory grows with what is put, up to n.
func NewRecent[K comparable, V any](n int) *Recent[K, V] {
	return &Recent[K, V]{n: n, m: make(map[K]V)}
}

// Put remembers a key. One that is there already has the new value, and is as old as it was.
func (r *Recent[K, V]) Put(k K, v V) {
	if _, there := r.m[k]; !there {
		r.enter(k)
	}
	r.m[k] = v
}

// enter gives the key a place: that of the oldest where all are taken.
func (r *Recent[K, V]) enter(k K) {
	if len(r.ring) < r.n {
		r.ring = append(r.ring, k)
		return
	}
	delete(r.m, r.ring[r.next])
	r.ring[r.next] = k
	r.next = (r.next + 1) % r.n
}

// Get returns the key's value.
func (r *Recent[K, V]) Get(k K) (v V, ok bool) {
	v, ok = r.m[k]
	return v, ok
}
