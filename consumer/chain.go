package consumer

import "github.com/longshoremq/longshore/broker"

// A row is messages of one claim that follow one another in a lane.
type row struct {
	k      *claim
	number uint64 // of the lane
	ms     []broker.Message
	alone  bool // they were in a batch in which one before them failed, and each is handled in a batch of its own
}

// A chain is what waits in a lane, in blocks. It has no lock: it stands under that of the lanes.
type chain struct {
	first, last   *block
	n             int // messages
	room          int // of the last block that was made
	crowded, full bool
	own           bool // what waits shares no bytes with what came together with it: see keep
}

// A block is messages that lie one behind the other, so that many can be handed to a worker as they lie. They are copied into it
// from where they were received: of what is received together some wait, and the others would stay in memory with them. No room
// in it is used again, as a handler may keep its message, and all of it stays in memory as long as one does.
type block struct {
	row
	bytes int // of the messages, which it keeps in memory
	own   bool
	next  *block
}

const (
	// A lane's first block has room for so few, as most lanes never need more. Each next one has twice as much.
	smallBlock = 2
	largeBlock = 128
	// sharedAtOnce are the messages whose memory is taken together, for small blocks of any lanes.
	sharedAtOnce = 32
	// copied: a row of up to so many messages is put together from several blocks, and a longer one is what lies in the first.
	copied = 8
)

// A stash makes blocks. Memory for small ones is taken many at a time: all of it stays as long as one of them does, so there are
// fewer where messages are large.
type stash struct {
	blocks []block
	ms     []broker.Message
	bytes  int // of the messages that came since
}

// block makes an empty one with room for n messages.
func (s *stash) block(n int) *block {
	if len(s.blocks) == 0 {
		s.blocks = make([]block, sharedAtOnce/smallBlock)
	}
	b := &s.blocks[0]
	s.blocks = s.blocks[1:]
	if n > smallBlock {
		b.ms = make([]broker.Message, 0, n)
		return b
	}
	if len(s.ms) < n || s.bytes >= slabBytes {
		s.ms, s.bytes = make([]broker.Message, sharedAtOnce), 0
	}
	b.ms, s.ms = s.ms[:0:n], s.ms[n:]
	return b
}

// push puts a copy of m behind all others.
func (c *chain) push(k *claim, m *broker.Message, st *stash) {
	b := c.last
	if b == nil || b.k != k || b.alone || b.own != c.own || len(b.ms) == cap(b.ms) || b.bytes >= slabBytes {
		b = c.extend(k, st)
	}
	if c.own {
		m = m.Clone()
	}
	b.ms = append(b.ms, *m)
	weight := weightOf(m)
	b.bytes += weight
	st.bytes += weight
	c.n++
}

// done lets go of what was in a block: others lie beside it, and it stays in memory as long as any of them does.
func (b *block) done() {
	if b != nil {
		b.ms, b.next = nil, nil
	}
}

// extend adds a block.
func (c *chain) extend(k *claim, st *stash) *block {
	c.room = max(smallBlock, min(2*c.room, largeBlock))
	b := st.block(c.room)
	b.k, b.own = k, c.own
	if c.n == 0 { // what was there is used up
		c.first = b
	} else {
		c.last.next = b
	}
	c.last = b
	return b
}

// pop takes up to most messages of one claim from the front of a chain that has one. There are fewer where more would have to be
// copied.
func (c *chain) pop(most int) row {
	b := c.first
	c.own = false
	n := min(most, len(b.ms))
	if n < min(most, c.n) && n < copied && b.next.k == b.k && b.next.alone == b.alone {
		return c.gather(min(most, c.n))
	}
	r := row{k: b.k, ms: b.ms[:n:n], alone: b.alone}
	c.shift(n)
	return r
}

// gather is pop of messages that lie in several blocks.
func (c *chain) gather(most int) row {
	b, bytes := c.first, 0
	r := row{k: b.k, ms: make([]broker.Message, 0, most), alone: b.alone}
	for len(r.ms) < most && c.n > 0 && c.first.k == r.k && c.first.alone == r.alone && bytes < slabBytes {
		m := &c.first.ms[0]
		r.ms = append(r.ms, *m)
		bytes += weightOf(m)
		c.shift(1)
	}
	return r
}

// hasOrPrecedes says whether the messages may run before an offset does: it is among them, before all that stand behind it, or
// none does.
func (c *chain) hasOrPrecedes(offset int64) bool {
	for b := c.first; b != nil; b = b.next {
		for i := range b.ms {
			if o := b.ms[i].Offset; o >= offset {
				return o == offset
			}
		}
	}
	return true
}

// shift takes n messages off the first block. The last block stays, for what comes next.
func (c *chain) shift(n int) {
	b := c.first
	b.ms = b.ms[n:]
	c.n -= n
	switch {
	case len(b.ms) > 0:
	case b.next != nil:
		c.first = b.next
		b.done()
	case cap(b.ms) == 0:
		b.done()
	}
}

// putBack puts a row before all others, as it lies.
func (c *chain) putBack(r row) {
	if len(r.ms) == 0 {
		return
	}
	b := &block{row: r}
	b.ms = r.ms[:len(r.ms):len(r.ms)]
	if c.n == 0 {
		c.last.done()
		c.last = b
	} else {
		b.next = c.first
	}
	c.first = b
	c.n += len(r.ms)
}

// keep has what waits lie in memory of its own, and what comes until one is taken out: what is before it takes long. Each would
// else keep an answer of the broker in memory, with all that came in it, for as long as it waits. It is not copied in place, as a
// handler may keep what was put back.
func (c *chain) keep() {
	c.own = true
	if c.n == 0 {
		c.last.done()
		c.first, c.last = nil, nil
		return
	}
	for b := c.first; b != nil; b = b.next {
		if b.own {
			continue
		}
		ms := make([]broker.Message, len(b.ms))
		for i := range ms {
			ms[i] = *b.ms[i].Clone()
		}
		b.ms, b.own = ms, true
	}
}

// drop takes out what is of a claim.
func (c *chain) drop(k *claim) (rows []row) {
	was := c.first
	c.first, c.last, c.n = nil, nil, 0
	for b := was; b != nil; {
		next := b.next
		b.next = nil
		switch {
		case b.k == k && len(b.ms) > 0:
			rows = append(rows, b.row)
		case len(b.ms) == 0:
			b.done()
		case c.last == nil:
			c.first, c.last, c.n = b, b, len(b.ms)
		default:
			c.last.next = b
			c.last, c.n = b, c.n+len(b.ms)
		}
		b = next
	}
	return rows
}

// each calls do with each message.
func (c *chain) each(do func(*Message)) {
	for b := c.first; b != nil; b = b.next {
		for i := range b.ms {
			do(&b.ms[i])
		}
	}
}
