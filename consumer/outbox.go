package consumer

import "slices"

// An outbox is what waits to be published to one topic.
type outbox struct {
	queue  []letter
	active int // goroutines that publish
}

const (
	// mostTogether letters, and mostBytesTogether of keys and values (but one letter in any case), are published with one call: what
	// is not confirmed in the end is published again with as many others.
	mostTogether      = 512
	mostBytesTogether = 1 << 20
	// triesTogether is how often a letter is tried together with others. Then it goes alone: a broker may refuse a whole call
	// because of one letter, without a word about which.
	triesTogether = 2
)

// take takes the letters that are published together next, in their order: those in front that are of one kind.
func (b *outbox) take() []letter {
	n, bytes := 0, 0
	for n < len(b.queue) && n < mostTogether {
		x := &b.queue[n]
		bytes += len(x.m.Key) + len(x.m.Value)
		if n > 0 && (bytes > mostBytesTogether || x.alone() || b.queue[0].alone() || x.retries() != b.queue[0].retries()) {
			break
		}
		n++
	}
	xs := slices.Clone(b.queue[:n])
	clear(b.queue[:n])
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
	}
	return xs
}

// alone says whether x is published by itself: it was tried together with others, or its call has values that a publisher
// reads, and those are of a call and not of a letter.
func (x *letter) alone() bool { return x.tries >= triesTogether || x.failed.Context != nil }
