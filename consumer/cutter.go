package consumer

import "github.com/longshoremq/longshore/broker"

// A cutter makes works of chunks. It allocates them many at a time: slow handlers get a work for each message.
type cutter struct {
	queue   *queue
	classes bool // messages are of several classes
	slab    []work
	out     []*work
	numbers []uint64 // of lanes; fresh ones, as works keep theirs
	stash   stash
	tokens  []uint64 // fresh ones, as works keep theirs
	now     int64    // work.queued of what is cut
	call    int64    // of Receive, which returned it
}

// renew lets go of what was allocated together with works that were cut: they keep their messages in memory.
func (x *cutter) renew() {
	clear(x.out)
	x.slab, x.out = nil, x.out[:0]
}

const (
	worksAtOnce    = 30   // 4 KiB
	messagesAtOnce = 2048 // in works that are allocated together: all stay in memory as long as any of the works does
	tokensAtOnce   = 512  // the same
)

// cut makes works of q messages each, which are acked one by one or at the end of their work. What it returns is good until the
// next call.
func (x *cutter) cut(k *claim, ms []broker.Message, lanes []uint64, q int, each bool) []*work {
	clear(x.out)
	x.out = x.out[:0]
	for len(ms) > 0 {
		n := min(q, len(ms))
		if x.classes {
			n = x.sameClass(k, ms[:n])
		}
		w := x.work(q)
		w.init(k, ms[:n:n], nil)
		w.queued = x.now
		if w.each = each; n > 1 {
			w.tokens = x.tokensOf(w.ms)
		}
		if ms = ms[n:]; lanes != nil {
			w.lanes, lanes = lanes[:n:n], lanes[n:]
		}
		x.out = append(x.out, w)
	}
	return x.out
}

// whole makes works of batches that are complete by themselves, as they lie: to copy them would cost more than to handle them.
// rest is to gather, and so are those with a message that has its last run. What it returns is good until the next call.
func (x *cutter) whole(k *claim, ms []broker.Message, b *batches) (full []*work, rest []broker.Message) {
	clear(x.out)
	x.out = x.out[:0]
	bytes, from := 0, 0
	for i := range ms {
		if b.lastRun(k, &ms[i], past{}) {
			break
		}
		bytes += len(ms[i].Key) + len(ms[i].Value)
		if n := i + 1 - from; n == b.cfg.Size || bytes >= b.cfg.Bytes {
			w := x.work(n)
			w.k, w.ms, w.queued = k, ms[from:i+1:i+1], x.now
			w.initBatch(x.tokensOf(w.ms))
			x.out = append(x.out, w)
			bytes, from = 0, i+1
		}
	}
	return x.out, ms[from:]
}

// work is the next one to fill, with about n messages.
func (x *cutter) work(n int) *work {
	if len(x.slab) == 0 {
		x.slab = make([]work, max(1, min(worksAtOnce, messagesAtOnce/n)))
	}
	w := &x.slab[0]
	x.slab = x.slab[1:]
	return w
}

// sameClass is how many of ms, from the first, are of one class: a work is.
func (x *cutter) sameClass(k *claim, ms []broker.Message) int {
	class, n := x.queue.classOf(k, &ms[0]), 1 // asked once more, it may be of another
	for n < len(ms) && x.queue.classOf(k, &ms[n]) == class {
		n++
	}
	return n
}

// lanesOf makes room for the numbers of n lanes.
func (x *cutter) lanesOf(n, chunk int) []uint64 {
	if len(x.numbers) < n {
		x.numbers = make([]uint64, max(n, chunk))
	}
	numbers := x.numbers[:n:n]
	x.numbers = x.numbers[n:]
	return numbers
}

// tokensOf are the messages' tokens in one piece.
func (x *cutter) tokensOf(ms []broker.Message) []uint64 {
	n := len(ms)
	if len(x.tokens) < n {
		x.tokens = make([]uint64, max(n, tokensAtOnce))
	}
	tokens := x.tokens[:n:n]
	x.tokens = x.tokens[n:]
	for i := range ms {
		tokens[i] = ms[i].Token
	}
	return tokens
}
