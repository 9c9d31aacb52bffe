package natsbroker

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// Receive implements broker.Source.
func (s *Source) Receive(dst []broker.Message) (int, error) {
	for {
		s.mu.Lock()
		if err := s.receiveErr(); err != nil {
			s.mu.Unlock()
			return 0, err
		}
		if n := s.handOut(dst); n > 0 {
			s.mu.Unlock()
			return n, nil
		}
		s.waiting = true
		s.mu.Unlock()
		<-s.wake
	}
}

func (s *Source) receiveErr() error {
	switch {
	case s.stopped:
		return broker.ErrClosed
	case s.fatal != nil:
		return s.fatal
	}
	return nil
}

// handOut fills dst with what is buffered, as far as the budget goes. The caller holds s.mu.
func (s *Source) handOut(dst []broker.Message) int {
	ses := s.ses
	if ses == nil || ses.ready.n == 0 || s.paused || ses.ended || s.outOfOrder(ses) {
		return 0
	}
	n, now := 0, s.clock()
	if ses.pin.doubtful(now, s.term()) {
		s.tendPin()
		return 0
	}
	if ses.unsorted {
		ses.sortReady()
	}
	for n < len(dst) && ses.ready.n > 0 && s.credit.out < s.credit.budget.Messages {
		i := ses.ready.pop()
		sl := &ses.slots.all[i]
		if s.expired(sl, now) {
			// The process was frozen, or cut off: another one has it by now. If not, it comes again.
			s.drop(ses, i)
			if s.group != "" { // and nothing that stands behind it may be ahead of it then
				s.regather(ses)
				return n
			}
			continue
		}
		fill(&dst[n], ses, i, sl)
		s.credit.buffered--
		s.credit.out++
		ses.out++
		n++
	}
	return n
}

// outOfOrder says whether something may come that stands before what is here, or is still out under an earlier claim. The caller
// holds s.mu.
func (s *Source) outOfOrder(ses *session) bool {
	return s.opts.Ordered && (s.credit.out > ses.out || ses.pin.gathering || ses.pin.lost != nil)
}

func fill(m *broker.Message, ses *session, i int32, sl *slot) {
	msg := sl.msg
	sl.msg, sl.state = nil, slotOut
	*m = broker.Message{
		Topic:     msg.Subject,
		Partition: -1,
		Offset:    int64(sl.seq),
		Value:     msg.Data,
		Nanos:     sl.nanos,
		Attempt:   int32(min(sl.delivered, 1<<31-1)),
		Runs:      sl.runs,
		Token:     ses.slots.token(i),
		Claim:     ses.claim,
	}
	if len(msg.Header) > 0 {
		m.Headers = headersOf(msg.Header)
	}
	if len(msg.Header) > 0 || ses.src.cfg.KeyToken != 0 {
		m.Key = ses.src.cfg.key(msg)
	}
}

// drop lets go of a buffered message. The caller holds s.mu.
func (s *Source) drop(ses *session, i int32) {
	s.credit.buffered--
	s.credit.bytes -= int64(ses.slots.all[i].size)
	ses.slots.remove(i)
	s.wantPull()
}

// rouse wakes Receive, if it waits. The caller holds s.mu.
func (s *Source) rouse() {
	if s.waiting {
		s.waiting = false
		s.wake <- struct{}{} // of capacity 1, and empty: only who turns waiting off sends
	}
}

// arrived is called by nats.go for each answer to a pull, by one goroutine for each inbox.
func (b *inbox) arrived(m *nats.Msg) {
	s := b.src
	d, ok := parseReply(m.Reply)
	if !ok {
		b.answered(m)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard++
	s.barren.over()
	id, size := s.pinOf(m)
	asked := b.asked()
	if !b.retired {
		s.credit.arrived(size)
		defer s.wantNext()
	}
	switch {
	case b.ses == s.ses:
		if s.group == "" || b.ses.ended || s.mine(b.ses, id, m.Reply, d) {
			s.accept(b.ses, m, d, asked)
		}
	case b.ses.pin.lost != nil: // whoever is pinned now waits for it
		s.outbox.nak(m.Reply, 0, s.contact+s.ackWait())
	} // else of a consumer that is no more
}

// asked says whether there is a request that a message at this inbox may answer. The caller holds s.mu.
func (b *inbox) asked() bool {
	if !b.retired {
		return b.src.credit.asked > 0
	}
	b.owed--
	return b.owed >= 0
}

// unasked is deliveries that answer no request.
type unasked struct {
	n    int   // that were given back and not told of
	told int64 // when it was last told, by the source's clock
}

// tellUnasked is how often it is told of them, at most.
const tellUnasked = int64(time.Minute)

// refuse gives back a delivery that was not asked for and has no room: whoever may write to an inbox would else fill the memory.
// The server itself sends such a one where it counts other sizes than we do. The caller holds s.mu.
func (s *Source) refuse(ses *session, reply string) {
	if s.outbox.pending() < maxUnproven { // else it comes again by its lease
		s.outbox.nak(reply, 0, s.contact+s.ackWait())
	}
	s.regather(ses)
	u, now := &s.unasked, s.clock()
	u.n++
	if u.told == 0 || now-u.told >= tellUnasked {
		s.herald.warn(fmt.Errorf("natsbroker: consumer %s: deliveries that were not asked for came while the budget was used up, and were given back: %d",
			s.cfg.Consumer, u.n))
		u.n, u.told = 0, now
	}
}

// wantNext has pullLoop ask again when all that was asked for has come. The caller holds s.mu.
func (s *Source) wantNext() {
	if s.credit.asked == 0 {
		s.wantPull()
	}
}

// accept takes a delivery in: it is of a message that is here, or finished, or not due yet, or new. The caller holds s.mu.
func (s *Source) accept(ses *session, m *nats.Msg, d delivery, asked bool) {
	if ses.ended && !s.closing { // perhaps already of the consumer that is to follow
		s.outbox.nak(m.Reply, 0, s.contact+s.ackWait())
		return
	}
	s.lag.delivered(d)
	if ses.at.behind(d) && !ses.suspect {
		// Deliveries count from the beginning: the server crashed and forgot some, or somebody made the consumer anew, perhaps to have
		// everything handled again. Until it is known which, nothing counts as finished.
		ses.suspect = true
		s.lookNow()
	}
	if g, ok := ses.at.arrived(d); ok {
		s.herald.tell(broker.Event{Kind: broker.Gap, Claim: ses.claim, From: int64(g.from), N: g.n})
	}
	var failed int32
	// First deliveries come in the order of the stream. Only what does not can be here, or be finished: after a crash the server
	// may have forgotten that it delivered a message, and count from 1 again.
	if d.delivered > 1 || d.stream <= ses.highest {
		var done bool
		if failed, done = s.again(ses, m, d); done {
			return
		}
	}
	ses.unsorted = ses.unsorted || d.stream < ses.highest
	ses.highest = max(ses.highest, d.stream)
	if s.givesBack() && (s.closing || !s.opts.Ordered || s.credit.out+s.credit.buffered == 0) {
		s.outbox.nak(m.Reply, 0, s.contact+s.ackWait())
		return
	}
	if !asked && s.credit.full() {
		s.refuse(ses, m.Reply)
		return
	}
	i, sl := ses.slots.add(d.stream, d.nanos)
	sl.msg, sl.reply, sl.size = m, m.Reply, m.Size()
	sl.delivered, sl.runs = uint32(min(d.delivered, 1<<32-1)), failed
	sl.lease, sl.since, sl.round = s.contact, s.tick, s.round+1
	s.credit.buffered++
	s.credit.bytes += int64(sl.size)
	ses.ready.push(i)
	s.rouse()
}

// again deals with a message that may have been here before. done: it is dealt with. The caller holds s.mu.
func (s *Source) again(ses *session, m *nats.Msg, d delivery) (failed int32, done bool) {
	if sl := ses.slots.find(d.stream, d.nanos); sl != nil {
		// It is still here: the settle goes through the newest reply, and the lease counts anew. It is not handed out again.
		sl.reply = m.Reply
		sl.lease, sl.round = s.contact, s.round+1
		if ses.givenBack {
			// Close gave it back, and the server found our last pull, which it had not yet been told to forget.
			s.outbox.nak(m.Reply, 0, s.contact+s.ackWait())
		}
		return 0, true
	}
	if s.finished.has(d.stream, d.nanos) {
		if ses.suspect {
			ses.limbo = append(ses.limbo, m.Reply)
		} else {
			s.outbox.ack(m.Reply)
		}
		return 0, true
	}
	e, ok := s.runs.get(d.stream, d.nanos)
	if !ok {
		return 0, false
	}
	if now := s.clock(); e.due > now {
		// The nak that asked for a delay was lost with its connection.
		s.outbox.nak(m.Reply, time.Duration(e.due-now), s.contact+s.ackWait())
		return 0, true
	}
	return e.failed, false
}

// answered takes an answer without a message.
func (b *inbox) answered(m *nats.Msg) {
	s := b.src
	rest, mine := strings.CutPrefix(m.Subject, b.prefix)
	if !mine {
		return // nothing that a JetStream consumer sends
	}
	id, err := strconv.ParseUint(rest, 10, 64)
	if err != nil {
		return
	}
	st := readStatus(m.Header)
	s.mu.Lock()
	s.heard++
	current := !b.retired && b.ses == s.ses
	if current && st.verdict != pullAlive {
		s.credit.ended(id, st)
		if d := s.barren.ended(id, s.credit.lastID, s.clock()); d > 0 {
			time.AfterFunc(d, s.poke)
		}
	}
	if b.ses == s.ses && st.verdict == pullUnpinned {
		s.lose(b.ses, errPinTaken)
	}
	s.mu.Unlock()
	if current {
		s.react(st)
	}
}
