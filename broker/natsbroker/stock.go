package natsbroker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// stock is what is here of the consumer's messages, from their arrival until they are settled, and decides what becomes of them.
// It does no I/O and waits for nothing: what is to be said goes into the outbox and the events, and bells wake those who do the
// rest. Not safe for concurrent use; holdings has the lock.
type stock struct {
	cfg     *Config
	clock   clock
	outbox  *outbox
	events  *kit.EventQueue
	bells   bells
	ordered bool

	flow     flow
	ses      *session   // nil before the first, or of a consumer that is gone
	stale    []*session // earlier ones that have messages out
	pulls    pulls
	leases   leases
	memory   memory
	lag      lag
	receiver waiter
	said     settles // on their way into the outbox
	denied   seldom  // settles that we may not publish

	came     uint64    // deliveries, ever
	pinID    string    // the newest that came with one
	brought  string    // the delivery that it came with, which is neither here nor given back; empty: there is none
	older    uint64    // those up to this one are of a consumer that may be no more
	created  time.Time // of the consumer
	toldBy   string    // the id of the server that says so
	from     after     // from where to go on when the consumer is lost
	log      string    // Message.Log; empty where we may not ask for the stream
	bareness bareness

	maxDeliver int       // max_deliver of the consumer; below 1: as often as it takes
	drops      lossCount // by that
	tellDrops  func()    // without the lock
}

// bells wake those who work on the stock.
type bells struct {
	receive kit.Bell // Receive
	pull    kit.Bell // the puller, to look at everything
	pin     kit.Bell // the pinner
	watch   kit.Bell // the watcher: is the consumer still there?
	lease   kit.Bell // the lease keeper: the ack wait is another
}

func newBells() bells {
	return bells{kit.NewBell(), kit.NewBell(), kit.NewBell(), kit.NewBell(), kit.NewBell()}
}

// wantPull has the puller ask for more, if it is worth a request.
func (s *stock) wantPull() {
	if s.pulls.in == nil {
		return
	}
	if _, ok := s.nextRequest(); ok {
		s.bells.pull.Ring()
	}
}

// nextRequest says what to ask for now. Where that is to wait, the puller looks again by itself.
func (s *stock) nextRequest() (request, bool) {
	if s.ses != nil && s.ses.pin.group != "" {
		return s.ses.pin.next(&s.pulls.credit)
	}
	r, ok := s.pulls.next()
	if !ok || !s.pulls.small() {
		return r, ok
	}
	now := s.clock.now()
	rest, wake := s.pulls.rest(now)
	if wake {
		time.AfterFunc(rest, s.bells.pull.Ring)
	}
	return r, rest <= 0
}

// standsBy says that another process is pinned, or nobody yet.
func (s *stock) standsBy() bool { return s.ses != nil && s.ses.pin.standsBy() }

// hasTurn says that no other process is pinned, nor may be.
func (s *stock) hasTurn() bool {
	p := &s.ses.pin
	return p.isOurs(s.clock.now(), s.term(s.ses))
}

// adopt takes the settings of the consumer as it is. Whoever may change it may do so while it is in use.
func (s *stock) adopt(cc jetstream.ConsumerConfig) {
	if wait := int64(max(lease(cc), leastLease)); wait != s.leases.ackWait {
		s.leases.ackWait = wait
		s.bells.lease.Ring()
	}
	s.maxDeliver = cc.MaxDeliver
	if group, was := pinned(cc), s.ses.pin.group; s.ordered && group != "" && group != was {
		why := errPinBegins
		if was != "" {
			why = errPinRenamed
		}
		s.ses.pin.group = group
		s.lose(s.ses, why)
	}
	s.pulls.maxBatch, s.pulls.maxBytes, s.pulls.maxExpires = cc.MaxRequestBatch, int64(cc.MaxRequestMaxBytes), cc.MaxRequestExpires
	s.ses.pin.ttl = int64(cmp.Or(cc.PinnedTTL, defaultPinTTL))
	s.ses.at.exact = s.ses.at.exact && slices.Equal(s.ses.at.filter, filterOf(cc))
}

// term is for how long after its last sign a session's pin is relied upon.
func (s *stock) term(ses *session) int64 { return term(s.leases.ackWait, ses.pin.ttl) }

// fail ends pulling for good.
func (s *stock) fail(err error) {
	if s.flow.fatal == nil {
		s.flow.fatal = err
	}
	s.receiver.rouse()
	s.bells.pull.Ring()
}

// arrived takes a delivery that came to an inbox.
func (s *stock) arrived(b *inbox, m *nats.Msg, d delivery) {
	id, size := "", m.Size()
	if b.ses.pin.group != "" {
		if id, size = takePin(m); id != "" && id != s.pinID {
			s.pinID, s.brought = id, ""
		}
	}
	asked := s.pulls.came(b, size)
	s.recount(b, d)
	switch {
	case b.ses == s.ses:
		if b.ses.pin.group == "" || b.ses.ended || s.mine(b.ses, id, m, d) {
			s.accept(b.ses, m, d, asked)
		}
	case b.ses.pin.lost != nil: // whoever is pinned now waits for it
		s.giveBack(m.Reply)
		s.pinnedAgain(b.ses)
	default: // of a consumer that is no more, or of the one that followed it
		s.pinnedBefore(id, m.Reply)
	}
	if !b.retired && s.pulls.asked == 0 { // all that was asked for has come
		s.wantPull()
	}
}

// recount looks whether deliveries to an inbox count backwards, or to the next one where nothing was in doubt. A server that
// crashed, or another leader, does not know the requests that are answered there. So the consumer was reset, or made anew, or a
// request met a new leader that lacks the last deliveries of the one before.
func (s *stock) recount(b *inbox, d delivery) {
	if d.consumer <= b.last {
		b.ses.back, b.ses.pin.last = true, 0
	}
	b.last = d.consumer
}

// answered takes an answer without a message, and says whether it is about a request that counts.
func (s *stock) answered(b *inbox, id uint64, st status) (current bool) {
	s.pulls.heard++
	current = !b.retired && b.ses == s.ses
	if current && st.verdict != pullAlive {
		s.pulls.ended(id, st)
		if d := s.pulls.barren.ended(id, s.pulls.lastID, s.clock.now()); d > 0 {
			time.AfterFunc(d, s.bells.pull.Ring)
		}
	}
	if st.verdict == pullAbsent {
		s.pulls.nobody.said(s.clock.now())
	} else {
		s.pulls.nobody.over()
	}
	switch st.verdict {
	case pullDeleted, pullReset, pullAbsent: // there may be another one by now, or its server was started again, behind another one
		s.doubt()
	}
	if b.ses == s.ses && st.verdict == pullUnpinned {
		s.lose(b.ses, errPinTaken)
	}
	return current
}

// leave voids the requests, and returns their inbox, to be drained; where one of them may be pinned, that is listened to for as
// long as it may be answered.
func (s *stock) leave() (old *inbox) {
	expires, _ := pullTimes(s.cfg.Heartbeat, s.pulls.maxExpires)
	return s.pulls.linger(s.pulls.leave(), s.clock.now()+int64(expires))
}

// doubt has nothing said, or pulled anew, until the consumer was found to be the same.
func (s *stock) doubt() {
	s.older = s.came
	s.pulls.doubt()
	s.outbox.doubtIt()
}

// accept takes a delivery in: it is of a message that is here, or finished, or not due yet, or new.
func (s *stock) accept(ses *session, m *nats.Msg, d delivery, asked bool) {
	if ses.ended && !s.flow.closing { // perhaps already of the consumer that is to follow
		s.giveBack(m.Reply)
		return
	}
	if !ses.suspect && (ses.at.behind(d) || s.another(ses, d)) {
		// Deliveries count from the beginning, or another message had this sequence: the server crashed and forgot some, or somebody
		// made the consumer or the stream anew. Until it is known which, nothing counts as finished, and nothing is said of what came
		// before: who asked for nothing was not told of the deletion.
		ses.suspect = true
		s.doubt()
		s.bells.watch.Ring()
	}
	s.came++
	s.lag.delivered(d)
	if g, ok := ses.at.arrived(d); ok {
		s.events.Say(broker.Event{Kind: broker.Gap, Claim: ses.claim, From: int64(g.from), N: g.n})
	}
	var was runsEntry
	// First deliveries come in the order of the stream. Only what does not can be here, or be finished: after a crash the server
	// may have forgotten that it delivered a message, and count from 1 again.
	if d.delivered > 1 || d.stream <= ses.highest {
		var done bool
		if was, done = s.again(ses, m, d); done {
			return
		}
	}
	last := s.isLast(d.delivered)
	if !last && !s.ordered && s.outBefore(d.stream, d.nanos) {
		return // it comes again by its lease
	}
	ses.unsorted = ses.unsorted || d.stream < ses.highest
	ses.highest = max(ses.highest, d.stream)
	if s.flow.givesBack() && (s.flow.closing || !s.ordered || ses.slots.used == 0) && (s.flow.ends() || !last) {
		s.giveBack(m.Reply)
		if last {
			s.dropped(1)
		}
		s.regather(ses)
		return
	}
	if !last && s.bareness.of(m) {
		s.outbox.nak(m.Reply, bareWait, s.leases.untilNow())
		s.regather(ses)
		s.bells.watch.Ring()
		return
	}
	if !asked && s.pulls.full(mostOver(last)) {
		s.refuse(ses, m.Reply)
		if last {
			s.dropped(1)
		}
		return
	}
	i, sl := ses.slots.add(d.stream, d.nanos)
	sl.msg, sl.reply, sl.size = m, m.Reply, m.Size()
	sl.delivered, sl.runs, sl.nth = uint32(min(d.delivered, 1<<32-1)), was.failed, s.came
	sl.newest = sl.delivered
	s.postpone(sl, was.due)
	s.leases.begin(sl)
	s.pulls.buffer(sl.size)
	ses.ready.push(i)
	s.receiver.rouse()
}

// another says whether another message is known here by the sequence of a delivery's.
func (s *stock) another(ses *session, d delivery) bool {
	if d.delivered == 1 && d.stream > ses.highest { // none here had a sequence as high
		return false
	}
	return s.memory.finished.drops(d.stream, d.nanos) || slices.ContainsFunc(s.sessions(), func(of *session) bool {
		return !of.gone && of.slots.another(d.stream, d.nanos)
	})
}

// A bareness says whether messages come without the payload that they have: somebody has set headers_only, which the watcher will
// see. A header says so, which a publisher may have set.
type bareness struct {
	doubted bool // such a message came
	theirs  bool // the consumer was looked at since, and it is the publishers' header
}

// bareWait is for how long what came bare is given back: until the consumer was looked at.
const bareWait = time.Second

// of says whether a message may have a payload that did not come, and takes note of that.
func (b *bareness) of(m *nats.Msg) bool {
	if len(m.Data) > 0 || len(m.Header) == 0 || b.theirs {
		return false
	}
	size := m.Header.Get(nats.MsgSize)
	doubt := size != "" && size != "0"
	b.doubted = b.doubted || doubt
	return doubt
}

// follow has deliveries come to another session.
func (s *stock) follow(next *session) {
	if s.ses != nil && s.ses.out > 0 {
		s.stale = append(s.stale, s.ses)
	}
	s.ses = next
}

// sessions are the earlier ones that have messages out, and the present one. The list is the caller's: stale has no room for it.
func (s *stock) sessions() []*session { return append(slices.Clip(s.stale), s.ses) }

// outBefore says whether a message is still out under an earlier claim. In an order nothing at all is handed out then, and what
// comes waits here; see outOfOrder.
func (s *stock) outBefore(seq uint64, nanos int64) bool {
	return slices.ContainsFunc(s.stale, func(ses *session) bool {
		sl := ses.slots.find(seq, nanos)
		return sl != nil && sl.state == slotOut
	})
}

// again deals with a message that may have been here before. done: it is dealt with.
func (s *stock) again(ses *session, m *nats.Msg, d delivery) (was runsEntry, done bool) {
	if sl := ses.slots.find(d.stream, d.nanos); sl != nil {
		// It is still here: the settle goes through the newest reply, and the lease counts anew. It is not handed out again.
		sl.reply, sl.nth, sl.forgotten = m.Reply, s.came, false
		sl.newest = uint32(min(d.delivered, 1<<32-1)) // if it waits yet, its last attempt is to be known as that
		s.leases.again(sl)
		if sl.state == slotOut && s.isLast(d.delivered) {
			sl.msg = m
		}
		if sl.others == othersMay { // it was not settled by then, when the count had fallen already
			sl.others = othersDidNot
		}
		if ses.givenBack {
			// Close gave it back, and the server found our last pull, which it had not yet been told to forget.
			s.giveBack(m.Reply)
		}
		return was, true
	}
	if ses.back && s.memory.finished.has(d.stream, d.nanos) && !s.outbox.unproven(d.stream) {
		// The server had taken its ack, and counts anew: somebody wants messages to be handled again.
		s.memory.finished.forget()
		for _, reply := range ses.takeLimbo() {
			s.giveBack(reply)
		}
	}
	if s.memory.finished.has(d.stream, d.nanos) {
		if ses.suspect {
			ses.limbo = append(ses.limbo, m.Reply)
		} else {
			s.outbox.ack(m.Reply, s.came)
		}
		return was, true
	}
	was, _ = s.memory.runs.get(d.stream, d.nanos)
	if now := s.clock.now(); was.due > now && !s.isLast(d.delivered) {
		// The nak that asked for a delay was lost with its connection.
		s.outbox.nak(m.Reply, time.Duration(was.due-now), s.leases.untilNow())
		return was, true
	}
	return was, false
}

// giveBack gives back what has just come.
func (s *stock) giveBack(reply string) { s.outbox.nak(reply, 0, s.leases.untilNow()) }

// refuse gives back a delivery that was not asked for and has no room: whoever may write to an inbox would else fill the memory.
// The server itself sends such a one where it counts other sizes than we do.
func (s *stock) refuse(ses *session, reply string) {
	if s.outbox.pending() < maxUnproven { // else it comes again by its lease
		s.giveBack(reply)
	}
	s.regather(ses)
	if n := s.pulls.unasked.happened(s.clock.now()); n > 0 {
		s.warn(fmt.Errorf("natsbroker: consumer %s: deliveries that were not asked for came while the budget was used up, "+
			"and were given back: %d", s.cfg.Consumer, n))
	}
}

func (s *stock) warn(err error) { s.events.Say(broker.Event{Kind: broker.Warning, Err: err}) }

// handOut fills dst with what is buffered, as far as the budget goes.
func (s *stock) handOut(dst []broker.Message) (n int) {
	ses := s.ses
	if ses == nil || ses.ready.n == 0 || s.flow.paused || ses.ended || s.outOfOrder(ses) {
		return 0
	}
	now := s.clock.now()
	if ses.pin.doubtful(now, s.term(ses)) {
		s.bells.pin.Ring()
		return 0
	}
	ses.sort()
	room, _, ok := s.pulls.gate.Room()
	for left := ses.ready.n; ok && n < min(len(dst), room) && left > 0; left-- {
		i := ses.ready.first()
		sl := &ses.slots.all[i]
		waits := s.waits(sl, now)
		if waits && s.ordered { // and what stands behind it
			break
		}
		ses.ready.pop()
		if waits {
			ses.ready.push(i)
			continue
		}
		if s.lapsed(sl, now) {
			// The process was frozen, or cut off: another one has it by now. If not, it comes again.
			s.drop(ses, i)
			if ses.pin.group != "" { // and nothing that stands behind it may be ahead of it then
				s.regather(ses)
				return n
			}
			continue
		}
		s.pulls.handOut(sl.size)
		ses.handOut(&dst[n], i, s.logOf(ses, sl.seq), s.cfg)
		if !s.last(sl) {
			sl.msg = nil
		}
		n++
	}
	return n
}

// logOf names the log of a message. There is no name while nobody knows whether the consumer is still the same, for then nobody
// knows it of the stream; and what is delivered at or below the floor is of a server that forgot it, or of a stream made anew.
// The next look at the consumer tells.
func (s *stock) logOf(ses *session, seq uint64) string {
	if ses.suspect || seq <= s.from.floor {
		return ""
	}
	return s.log
}

// floors are what is known of the stream.
func (s *stock) floors() []broker.Floor {
	if s.log == "" {
		return nil
	}
	return []broker.Floor{{Log: s.log, Offset: int64(s.from.floor) + 1}}
}

// outOfOrder says whether something may come that stands before what is here, or is still out under an earlier claim.
func (s *stock) outOfOrder(ses *session) bool {
	return s.ordered && (s.pulls.gate.Out() > ses.out || ses.pin.gathering || ses.pin.lost != nil)
}

// drop lets go of a buffered message.
func (s *stock) drop(ses *session, i int32) {
	s.pulls.drop(ses.slots.all[i].size)
	ses.slots.remove(i)
	s.wantPull()
}

// giveBackBuffered naks what was received and not handed out; where order was promised, only when nothing is out that it stands
// behind. What is out under a claim that is over does not count: whoever is pinned next waits for that.
func (s *stock) giveBackBuffered() {
	ses := s.ses
	if ses == nil || s.ordered && ses.out > 0 {
		return
	}
	if s.giveBackIf(ses, func(sl *slot) bool { return s.flow.ends() || !s.last(sl) }) {
		s.regather(ses) // a pause may be over before the naks have come, and what stands behind them comes first then
	}
}

// giveBackReady naks what was received and not handed out.
func (s *stock) giveBackReady(ses *session) { s.giveBackIf(ses, func(*slot) bool { return true }) }

// giveBackIf gives back what is not handed out, in the stream's order, where that is so, and says whether there was some.
func (s *stock) giveBackIf(ses *session, is func(*slot) bool) (some bool) {
	ses.sort()
	now, dropped := s.clock.now(), 0
	for range ses.ready.n {
		i := ses.ready.pop()
		sl := &ses.slots.all[i]
		if !is(sl) {
			ses.ready.push(i)
			continue
		}
		if s.holds(sl, now) && !ses.ended {
			s.memory.givenBack(sl, sl.runs, 0)
			s.outbox.nak(sl.reply, 0, s.leases.until(sl))
			if s.last(sl) {
				dropped++
			}
		}
		s.drop(ses, i)
		some = true
	}
	s.dropped(dropped)
	return some
}

// giveBackAll naks, in the stream's order, what was never settled. What is out keeps its slot, for the engine's settle frees it.
func (s *stock) giveBackAll(ses *session) {
	ses.givenBack = true
	now, dropped := s.clock.now(), 0
	for _, i := range ses.slots.held() {
		if sl := &ses.slots.all[i]; s.holds(sl, now) {
			s.outbox.nak(sl.reply, 0, s.leases.until(sl))
			if s.last(sl) {
				dropped++
			}
		}
	}
	s.dropped(dropped)
	for ses.ready.n > 0 {
		s.drop(ses, ses.ready.pop())
	}
}

// holds says whether what is said of a message is of that message for certain, and of nobody else's delivery.
func (s *stock) holds(sl *slot, now int64) bool { return !sl.forgotten && !s.leases.expired(sl, now) }

// forgot takes how far the server says that it has delivered, and which delivery was the newest here when it was asked. What came
// by then from behind that, it does not know any more: it crashed. With its power it may have lost the end of the stream, too,
// and gives the sequences to other messages. The sequence: 6 to 10 are handled here, and their acks on their way; the server
// loses them; others are stored as 6 to 10 and delivered; the acks, said again, settle these unseen. So nothing is said of what
// the server forgot, until it comes again.
func (s *stock) forgot(delivered, nth uint64) {
	for _, ses := range s.sessions() {
		if ses.highest > delivered {
			ses.slots.forget(delivered, nth)
		}
	}
}

// forgetConsumer lets go of the session that there is, whose consumer is gone, and of all that was remembered of it. over is the
// present connection.
func (s *stock) forgetConsumer(ses *session, over connEpoch) {
	ses.ended = true // the fence
	for _, old := range s.sessions() {
		old.gone = true // else what lost its pin would still settle
	}
	if s.outbox.isSure(over) { // nobody was in doubt before, as where nothing was asked for: then what is here may be of either
		s.older = s.came
	}
	s.outbox.letGo(over)
	s.pulls.doubt()       // another one counts from 1
	for ses.ready.n > 0 { // some may be deliveries of a consumer made anew
		i := ses.ready.pop()
		if sl := &ses.slots.all[i]; sl.nth > s.older {
			s.outbox.nak(sl.reply, 0, s.leases.until(sl))
		}
		s.drop(ses, i)
	}
	s.from.proof = nil
	s.memory.finished.witnesses(&s.from.proof, s.from.floor)
	s.memory.forget()
	s.lag = lag{}
}
