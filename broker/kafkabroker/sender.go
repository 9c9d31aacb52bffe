package kafkabroker

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A sender writes what is published to the partitions that one broker leads, one request after the other: what callers bring
// while one is under way goes together with the next. So a thousand callers of one message each share a few exchanges, and what
// goes to a partition keeps its order.
type sender struct {
	c    *cluster
	node int32
	life context.Context
	wg   *sync.WaitGroup

	// limits are of batches that were too large for their topic; run's alone. nil: none was.
	limits *kit.Recent[partitionID, int]
	// pace is how large a request is made; run's alone.
	pace pace

	mu     sync.Mutex
	queue  []unsent
	active bool // run is under way
}

// An unsent is a message as it goes into a batch.
type unsent struct {
	partitionID
	node int32 // that leads it
	tail []byte
	to   *delivery
	i    int // its number there
}

func (u *unsent) size() int { return len(u.tail) + recordOverhead }

// keyless says that its key is nil, of which the length is -1.
func (u *unsent) keyless() bool {
	length, _ := binary.Varint(u.tail)
	return length < 0
}

// A delivery is one caller's messages on their way, and what became of each.
type delivery struct {
	fates []fate
	left  atomic.Int32
	done  chan struct{} // room for one: it is told once, when nothing is left
	given atomic.Bool   // the caller does not wait any more: what was not sent yet need not be

	stops atomic.Bool // there is something in stopped
	mu    sync.Mutex
	// stopped are partitions that did not take a message which the caller sends again. What comes behind it waits for that.
	stopped map[partitionID]fate
}

// A fate is what became of a message: an error, and the offset of its batch, nowhere where it was certainly not stored.
type fate struct {
	err  error
	base int64
}

// nowhere is the base of a batch that was not stored, or not sent.
const nowhere = -1

func (d *delivery) set(i int, f fate) {
	d.fates[i] = f
	if d.left.Add(-1) == 0 {
		d.done <- struct{}{}
	}
}

// stop sends nothing more to a partition, for a message of the caller was not stored there.
func (d *delivery) stop(p partitionID, f fate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped == nil {
		d.stopped = make(map[partitionID]fate)
	}
	d.stopped[p] = f
	d.stops.Store(true)
}

// isStopped says whether that was done, and what became of the message.
func (d *delivery) isStopped(p partitionID) (f fate, is bool) {
	if !d.stops.Load() { // mostly
		return f, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f, is = d.stopped[p]
	return f, is
}

const (
	// requestLimit is how large a request is made, unless one message is larger.
	requestLimit = 4 << 20
	// leastLimit is below what a batch is not made smaller for good because one was too large.
	leastLimit = 64 << 10
)

// send takes messages over; it does not block.
func (s *sender) send(us []unsent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, us...)
	if !s.active {
		s.active = true
		s.wg.Go(s.run)
	}
}

// isIdle says whether nothing is left to send.
func (s *sender) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.active
}

// run sends until nothing is left.
func (s *sender) run() {
	s.wait()
	for us := s.take(nil); us != nil; us = s.take(us) {
		for _, round := range s.rounds(us) {
			s.deliver(round)
		}
		// Those who were told run first: else one of them would go alone with the next request, and all others wait for its exchange.
		runtime.Gosched()
		s.wait()
	}
}

// wait lets time pass until the broker takes something. What is queued by then is taken after it: who gave up meanwhile may write
// elsewhere.
func (s *sender) wait() {
	for d := s.c.throttles.left(s.node); d > 0 && s.life.Err() == nil; d = s.c.throttles.left(s.node) {
		pause(s.life, d)
	}
}

// take takes what is sent next: from the front, as much as a request has room for. nil: nothing is left, and run ends. sent is
// what it returned before, whose memory is for what comes next.
func (s *sender) take(sent []unsent) []unsent {
	clear(sent)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = slices.DeleteFunc(s.queue, func(u unsent) bool { return u.to.given.Load() })
	if len(s.queue) == 0 {
		s.queue, s.active = nil, false
		return nil
	}
	n, size := 0, 0
	for n < len(s.queue) && (n == 0 || size+s.queue[n].size() <= int(cmp.Or(s.pace.bound, requestLimit))) {
		size += s.queue[n].size()
		n++
	}
	us := s.queue[:n:n]
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = sent[:0]
	}
	return us
}

// A sendBatch is messages of one partition that go with one request.
type sendBatch struct {
	partitionID
	us          []*unsent
	size, limit int
	round       int
}

// rounds makes batches of messages, in their order: a request takes one of each partition.
func (s *sender) rounds(us []unsent) (rounds [][]*sendBatch) {
	last := make(map[partitionID]*sendBatch)
	for i := range us {
		u := &us[i]
		b, size := last[u.partitionID], u.size()
		if b == nil || b.size+size > b.limit {
			next := &sendBatch{partitionID: u.partitionID, limit: s.limitOf(u.partitionID)}
			if b != nil {
				next.round = b.round + 1
			}
			if b = next; b.round == len(rounds) {
				rounds = append(rounds, nil)
			}
			last[u.partitionID], rounds[b.round] = b, append(rounds[b.round], b)
		}
		b.us, b.size = append(b.us, u), b.size+size
	}
	return rounds
}

// unstopped are batches without what waits for earlier messages of its caller. That has their fate: else it would be stored
// before them.
func unstopped(batches []*sendBatch) []*sendBatch {
	return slices.DeleteFunc(batches, func(b *sendBatch) bool {
		b.us = slices.DeleteFunc(b.us, func(u *unsent) bool {
			f, is := u.to.isStopped(u.partitionID)
			if is {
				u.to.set(u.i, f)
			}
			return is
		})
		return len(b.us) == 0
	})
}

// end tells what became of a batch.
func (b *sendBatch) end(f fate) {
	if unstored(f) {
		for _, u := range b.us {
			u.to.stop(u.partitionID, f)
		}
	}
	for _, u := range b.us {
		u.to.set(u.i, f)
	}
}

// halves are the two of a batch.
func (b *sendBatch) halves() (first, second *sendBatch) {
	n := len(b.us) / 2
	return &sendBatch{partitionID: b.partitionID, us: b.us[:n]}, &sendBatch{partitionID: b.partitionID, us: b.us[n:]}
}

// limitOf is how large a partition's batch may be.
func (s *sender) limitOf(p partitionID) int {
	if s.limits != nil {
		if n, ok := s.limits.Get(p); ok {
			return n
		}
	}
	return batchLimit
}

// tooLarge takes note that a batch of several messages was too large for its topic.
func (s *sender) tooLarge(p partitionID, size int) {
	if s.limits == nil {
		s.limits = kit.NewRecent[partitionID, int](mostLearned)
	}
	s.limits.Put(p, min(s.limitOf(p), max(leastLimit, size/2)))
}

// deliver sends a batch to each of some partitions, with one request, and tells what became of their messages. A batch that was
// too large, or has a record that is invalid, is sent again in two halves, one after the other: callers share batches, and what
// is wrong with one message is no refusal of the others.
func (s *sender) deliver(batches []*sendBatch) {
	if batches = unstopped(batches); len(batches) == 0 {
		return
	}
	began := time.Now()
	said, err := s.produce(batches)
	s.paced(batches, time.Since(began), err)
	var firsts, seconds []*sendBatch
	for _, b := range batches {
		f := fate{err: err}
		switch of, ok := said[b.partitionID]; {
		case err == nil && !ok:
			f.err = fmt.Errorf("the answer to Produce has no partition %d: %w", b.no, errShort)
		case err == nil:
			f = fate{codeErr(of.code), of.base}
		case codeOf(err) == kafka.BrokerNotAvailable:
			f.base = nowhere // the Transport knew of nobody to send it to
		}
		large := isTooLarge(f.err)
		if len(b.us) > 1 && (large || isInvalid(f.err, slices.ContainsFunc(b.us, func(u *unsent) bool { return u.keyless() }))) {
			if large {
				s.tooLarge(b.partitionID, sizeOf(b.us))
			}
			first, second := b.halves()
			firsts, seconds = append(firsts, first), append(seconds, second)
			continue
		}
		b.end(f)
	}
	if firsts != nil {
		s.deliver(firsts)
		s.deliver(seconds)
	}
}

// paced takes note of how long a request took.
func (s *sender) paced(batches []*sendBatch, took time.Duration, err error) {
	switch {
	case isLate(err):
		size := 0
		for _, b := range batches {
			size += sizeOf(b.us)
		}
		s.pace.late(int64(size))
	case err == nil:
		s.pace.done(took, s.c.timeout)
	}
}

func isTooLarge(err error) bool {
	code := codeOf(err)
	return code == kafka.MessageSizeTooLarge || code == kafka.RecordListTooLarge
}

// isInvalid says whether a batch was perhaps refused for one of its records. Kafka 2.3 says of one without a key, for a topic
// that is compacted, that the batch was damaged.
func isInvalid(err error, keyless bool) bool {
	code := codeOf(err)
	return code == kafka.InvalidRecord || keyless && code == kafka.InvalidMessage
}

func sizeOf(us []*unsent) (n int) {
	for _, u := range us {
		n += u.size()
	}
	return n
}

// unnamed is who writes without a producer id.
var unnamed = producer{-1, -1}

// produce is one exchange.
func (s *sender) produce(of []*sendBatch) (map[partitionID]produced, error) {
	if _, err := s.c.pick(s.life, s.node, keyProduce, produceVersion); err != nil {
		return nil, err
	}
	now, batches := time.Now(), make(map[partitionID][]byte, len(of))
	for _, x := range of {
		b := make([]byte, headerSize, headerSize+sizeOf(x.us))
		for i, u := range x.us {
			b = appendRecord(b, u.tail, i)
		}
		seal(b, 0, unnamed, -1, len(x.us), now)
		batches[x.partitionID] = b
	}
	body, chunks := produceBody(produceVersion, "", s.c.timeout, batches)
	r, err := s.c.produce(s.life, s.node, produceVersion, body, chunks)
	if err != nil {
		return nil, err
	}
	return readProduced(r)
}

// senders are those of all brokers that are written to.
type senders struct {
	c     *cluster
	life  context.Context
	parts partitioner
	wg    sync.WaitGroup

	mu sync.Mutex
	by map[int32]*sender

	spare sync.Pool // of deliveries that somebody has waited for to their end
}

func newSenders(c *cluster, life context.Context, parts partitioner) *senders {
	return &senders{c: c, life: life, parts: parts, by: make(map[int32]*sender)}
}

// delivery makes one of n messages, or takes one that was given back.
func (s *senders) delivery(n int) *delivery {
	d, _ := s.spare.Get().(*delivery)
	if d == nil {
		d = &delivery{done: make(chan struct{}, 1)}
	}
	d.fates = slices.Grow(d.fates, n)[:n]
	d.left.Store(int32(n))
	return d
}

// free is called by who was told that nothing is left, and so by nobody who gave up: no sender knows of d any more.
func (s *senders) free(d *delivery) {
	clear(d.fates)
	clear(d.stopped)
	d.stops.Store(false)
	d.fates = d.fates[:0]
	s.spare.Put(d)
}

// to finds or makes a broker's.
func (s *senders) to(node int32) *sender {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.by[node]
	if x == nil {
		maps.DeleteFunc(s.by, func(node int32, x *sender) bool { return !s.c.has(node) && x.isIdle() }) // they may come and go for ever
		x = &sender{c: s.c, node: node, life: s.life, wg: &s.wg, pace: pace{least: leastLimit, most: requestLimit}}
		s.by[node] = x
	}
	return x
}

// deliver sends the messages with these numbers to the leaders of their partitions. It does not block.
func (s *senders) deliver(ms []broker.Outgoing, which []int, topics map[string]*written) *delivery {
	d := s.delivery(len(which))
	size := 0
	for _, i := range which {
		size += recordSize(&ms[i])
	}
	tails := make([]byte, 0, size) // copies: whoever has asked may write over its messages
	var one [1]unsent              // on the stack: send copies it
	us := one[:0]
	if len(which) > len(one) {
		us = make([]unsent, 0, len(which))
	}
	for j, i := range which {
		o := &ms[i]
		t := topics[o.Topic]
		if t == nil || t.err != nil {
			err := error(kafka.UnknownTopicOrPartition)
			if t != nil {
				err = t.err
			}
			d.set(j, fate{err, nowhere})
			continue
		}
		p := partitionID{o.Topic, s.parts.partition(o, len(t.leaders), &t.keyless)}
		node := t.leaders[p.no]
		if node < 0 {
			d.set(j, fate{kafka.LeaderNotAvailable, nowhere})
			continue
		}
		at := len(tails)
		tails = appendTail(tails, o)
		us = append(us, unsent{p, node, tails[at:len(tails):len(tails)], d, j})
	}
	s.send(us)
	return d
}

// send hands messages to the senders of their leaders.
func (s *senders) send(us []unsent) {
	if len(us) == 0 {
		return
	}
	node := us[0].node
	if !slices.ContainsFunc(us, func(u unsent) bool { return u.node != node }) {
		s.to(node).send(us)
		return
	}
	by := make(map[int32][]unsent)
	for _, u := range us {
		by[u.node] = append(by[u.node], u)
	}
	for node, us := range by {
		s.to(node).send(us)
	}
}

// await waits for what becomes of a delivery. Its error is ctx's. At the end of life what is under way or queued fails, so that
// need not be waited for, too.
func await(ctx context.Context, d *delivery) error {
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-d.done: // both: what is known is better than that it was perhaps stored
		return nil
	default:
		d.given.Store(true)
		return fmt.Errorf("kafkabroker: publishing: %w", ctx.Err())
	}
}
