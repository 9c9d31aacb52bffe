package page

// A ring keeps the latest of what was added. The zero value keeps nothing; newRing makes one. Not safe for concurrent use.
type ring[T any] struct {
	items []T
	next  int // where the next one goes, once it is full
}

func newRing[T any](most int) ring[T] { return ring[T]{items: make([]T, 0, most)} }

// add puts one in, in the place of the oldest where it is full.
func (r *ring[T]) add(x T) {
	if len(r.items) < cap(r.items) {
		r.items = append(r.items, x)
		return
	}
	r.items[r.next] = x
	r.next = (r.next + 1) % len(r.items)
}

// all are those that are kept, the oldest first, in a slice of the caller's own.
func (r *ring[T]) all() []T {
	list := make([]T, 0, len(r.items))
	return append(append(list, r.items[r.next:]...), r.items[:r.next]...)
}

// newest are up to n of them, the newest first.
func (r *ring[T]) newest(n int) []T {
	n = min(n, len(r.items))
	list := make([]T, 0, n)
	for i := range n {
		list = append(list, r.items[(r.next+len(r.items)-1-i)%len(r.items)])
	}
	return list
}
