package natsbroker

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker/kit"
)

// outbox is what has yet to be said to the server: settles wait here, and a writer sends them (outboxwriter.go). So Ack and Nack
// never wait for a socket whose other end does not read; and while there is no connection they stay here, where a nak can still
// be looked at.
//
// Sending an ack twice is harmless, so those without a receipt are sent again (ackwindow.go); a nak is never sent again, since by
// then it may take the message from somebody else.
//
// What is said names a message by its sequence. To a consumer made anew under the same name, of a stream made anew, it would
// be about another message. The sequence: a process loses its connection with acks that it has no receipt for; the server is
// started again without its streams; another process makes them anew, and gets the first messages; the first process is back,
// and its old acks settle those; the other one dies, and nobody ever has them. So nothing is written over a connection before
// the consumer was found, over it, to be the same (voucher.go); nor after an ack was refused or a pull ended by its deletion, for
// then there is no consumer.
//
// It does no I/O, and is safe for concurrent use.
type outbox struct {
	clock func() int64
	// dropped is told how many naks were not sent because their lease had run out, late how many acks may have come after theirs.
	dropped, late func(n int)
	// settled is told when the receipt of a batch's last ack was asked for, by the source's clock, and has come. An error: there
	// was nobody to give one. It comes at most once for each batch. nil: nobody is told.
	settled func(asked int64, err error)
	// gone is told how many acks were on their way to a consumer that is no more. nil: late is.
	gone   func(n int)
	wake   kit.Bell // for the writer
	doubt  kit.Bell // for the voucher
	proven kit.Bell // for who waits until all acks are taken; nil: nobody does

	mu      sync.Mutex
	settles settles     // to be written
	inHand  int         // messages handed out and not settled, when something was settled last
	gather  *time.Timer // rings for the writer when acks have waited for others; nil: none ever did
	waits   bool        // gather runs
	writing bool
	extends bool // a round of extensions is being written
	nakked  nakked
	stop    bool // Stop was
	window  ackWindow
	server  serverID
	sure    connEpoch // over which the consumer is the same
	asked   connEpoch // for which the voucher was called
	doubts  uint64    // how many acks were refused, or how often the consumer was said to be no more
	nobody  nobody    // to take acks
	proving bool      // somebody waits until all acks are taken
}

// A question is whether the consumer is still the same: over which connection it is asked, and how often that was in doubt by
// then.
type question struct {
	over   connEpoch
	doubts uint64
}

// serverID is the id of the last server that was written to, and when it was last found to be another, by the source's clock. Not
// safe for concurrent use.
type serverID struct {
	id      string
	changed int64
}

// met takes the id of the one that a connection leads to, and says whether the server was started again.
func (s *serverID) met(id string, now int64) bool {
	if id == "" || id == s.id {
		return false
	}
	again := s.id != ""
	s.id = id
	if again {
		s.changed = now
	}
	return again
}

// settles are acks and naks to be said.
type settles struct {
	acks []pendingAck
	naks []nak
}

type nak struct {
	reply string
	delay time.Duration
	until int64 // when the lease runs out, by the source's clock
	said  bool  // a Nack said nil to it; else the adapter gives back by itself
	last  bool  // it was given back since Stop
}

func (s *settles) empty() bool { return len(s.acks)+len(s.naks) == 0 }

// trim lets the oldest acks go where there are more than most; late is how many of those were still to arrive in time.
func (s *settles) trim(most int) (late int) {
	if n := len(s.acks) - most; n > 0 {
		late = overdue(s.acks[:n], never)
		s.acks = append(s.acks[:0], s.acks[n:]...)
	}
	return late
}

// reset keeps the space for the next ones.
func (s *settles) reset() {
	clear(s.acks)
	clear(s.naks)
	s.acks, s.naks = s.acks[:0], s.naks[:0]
}

// A connEpoch is one connection to one server, from its handshake to its end. The server's id changes when it is started again.
type connEpoch struct {
	conn   *nats.Conn
	nth    uint64
	server string
}

func epochOf(nc *nats.Conn) connEpoch {
	if nc == nil {
		return connEpoch{}
	}
	return connEpoch{nc, nc.Stats().Reconnects, nc.ConnectedServerId()}
}

func newOutbox(clock func() int64, dropped, late func(int)) *outbox {
	return &outbox{clock: clock, dropped: dropped, late: late, wake: kit.NewBell(), doubt: kit.NewBell()}
}

// add queues settles of messages whose leases hold for ackWait from when they began or were last extended. What is given is
// copied. inHand is how many messages are still to be settled. The writer hears of it by rouse, when whoever settles holds no
// lock any more that the writer's work would want.
func (o *outbox) add(s *settles, ackWait int64, inHand int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inHand = inHand
	from := len(o.settles.acks)
	o.settles.acks = append(o.settles.acks, s.acks...)
	for _, k := range s.naks {
		k.last = o.stop
		o.settles.naks = append(o.settles.naks, k)
	}
	if o.server.changed > 0 { // as for those that were here when it changed
		shortenOlder(o.settles.acks[from:], o.server.changed+ackWait)
	}
}

// rouse has the writer look; where acks may wait for more, when they have. It is not the writer that waits: woken by the first of
// them it would do nothing but set a timer, and that wake-up is one of three that a write takes.
func (o *outbox) rouse() {
	o.mu.Lock()
	may := mayGather(len(o.settles.acks), len(o.settles.naks), o.inHand)
	if may && !o.waits {
		o.waits = true
		if o.gather == nil {
			o.gather = time.AfterFunc(gatherTime, o.gathered)
		} else {
			o.gather.Reset(gatherTime)
		}
	}
	o.mu.Unlock()
	if !may {
		o.wake.Ring()
	}
}

// gathered is called when acks have waited for others.
func (o *outbox) gathered() {
	o.mu.Lock()
	o.waits = false
	o.mu.Unlock()
	o.wake.Ring()
}

// gathering says whether what is to be written may wait for more.
func (o *outbox) gathering() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return mayGather(len(o.settles.acks), len(o.settles.naks), o.inHand)
}

const (
	// gatherTime is how long acks wait for others at most. Each write costs as much as 20 acks in it, here and at the server.
	gatherTime = 500 * time.Microsecond
	// gatherShare of what is in hand may wait. Where the server hands out no more than what is in hand, each ack makes room for a
	// message: so few do not leave the workers without work.
	gatherShare = 16
)

// mayGather says whether so many acks and naks may wait for more, while so many messages are in hand. Where these are few each
// ack is written at once.
func mayGather(acks, naks, inHand int) bool {
	return acks > 0 && naks == 0 && acks < inHand/gatherShare
}

// ack queues an ack that may come as late as it does.
func (o *outbox) ack(reply string, nth uint64) {
	o.mu.Lock()
	o.settles.acks = append(o.settles.acks, pendingAck{reply, never, nth})
	o.mu.Unlock()
	o.rouse()
}

// nak queues one that the adapter gives back by itself.
func (o *outbox) nak(reply string, delay time.Duration, until int64) {
	o.mu.Lock()
	o.settles.naks = append(o.settles.naks, nak{reply: reply, delay: delay, until: until, last: o.stop})
	o.mu.Unlock()
	o.rouse()
}

// An outgoing is what is to be written now, with the receipts to ask for with the first ack and the last.
type outgoing struct {
	settles
	first, last receipt
	over        connEpoch
}

// ask is the question whether the consumer is still the same. It begins before the server is asked.
func (o *outbox) ask(over connEpoch) question {
	o.mu.Lock()
	defer o.mu.Unlock()
	return question{over, o.doubts}
}

// vouched says that the answer was yes.
func (o *outbox) vouched(q question) {
	o.mu.Lock()
	if q.doubts == o.doubts {
		o.sure = q.over
	}
	o.asked = connEpoch{} // where there is another connection by now
	o.mu.Unlock()
	o.rouse()
}

// forgot takes how far the server says that it has delivered, and which delivery was the newest here when it was asked; it lets
// go of what is to be said of messages behind that (stock.forgot). What was finished is remembered, and what was given back comes
// again anyway.
func (o *outbox) forgot(delivered, nth uint64) {
	o.mu.Lock()
	acks, late := known(o.settles.acks, delivered, nth)
	o.settles.acks = acks
	o.settles.naks = slices.DeleteFunc(o.settles.naks, func(n nak) bool { return behind(n.reply, delivered) })
	late += o.window.forgot(delivered, nth)
	o.mu.Unlock()
	o.tellLate(late)
}

// known is the acks of messages up to delivered, and those of later deliveries than the nth; late is how many others were still
// to arrive in time.
func known(acks []pendingAck, delivered, nth uint64) (kept []pendingAck, late int) {
	kept = acks[:0]
	for _, a := range acks {
		if a.nth <= nth && behind(a.reply, delivered) {
			late += overdue([]pendingAck{a}, never)
		} else {
			kept = append(kept, a)
		}
	}
	clear(acks[len(kept):])
	return kept, late
}

// behind says whether a reply is of a delivery of a message that stands behind delivered.
func behind(reply string, delivered uint64) bool {
	d, ok := parseReply(reply)
	return ok && d.stream > delivered
}

// isSure says whether the consumer is known to be the same over a connection.
func (o *outbox) isSure(over connEpoch) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return over == o.sure
}

// take takes what is to be written over a connection; written gives back what is left of it. listening: receipts come.
func (o *outbox) take(over connEpoch, listening bool) outgoing {
	o.mu.Lock()
	if o.server.met(over.server, o.clock()) { // what was to arrive before may have less time
		shorten(o.settles.acks)
		o.window.shorten()
	}
	if over != o.sure {
		if over != o.asked { // the voucher is called once for each connection
			o.asked = over
			o.doubt.Ring()
		}
		late := o.settles.trim(maxUnproven)
		o.mu.Unlock()
		o.tellLate(late)
		return outgoing{}
	}
	defer o.mu.Unlock()
	out := outgoing{settles: o.settles, over: over}
	o.settles = settles{acks: o.window.spare.take()}
	if o.extends {
		o.settles.naks, out.naks = out.naks, nil
	}
	out.acks, out.first, out.last = o.window.enter(out.acks, over, listening, o.clock())
	o.writing = !out.empty()
	if !o.writing {
		o.window.spare.give(out.acks)
	}
	return out
}

// extending says that a round of extensions begins to be written, or has been. What is given back meanwhile is said behind it,
// for it may be part of it: the server would extend what it was told to keep for a delay, and give it to whoever asks when an
// ack wait is over.
func (o *outbox) extending(on bool) {
	o.mu.Lock()
	o.extends = on
	held := len(o.settles.naks) > 0
	o.mu.Unlock()
	if !on && held {
		o.rouse()
	}
}

// written ends a write: of the naks, the last ones could not be sent, and expired ones were not.
func (o *outbox) written(out outgoing, unsent []nak, expired int) {
	o.mu.Lock()
	o.writing = false
	if len(out.naks) > len(unsent)+expired {
		o.nakked.written(out.over, o.clock(), slices.ContainsFunc(out.naks, func(k nak) bool { return k.last }))
	}
	if len(unsent) > 0 {
		o.settles.naks = append(append([]nak(nil), unsent...), o.settles.naks...)
	}
	o.window.spare.give(out.acks)
	late := o.window.trim()
	o.mu.Unlock()
	o.tellLate(late)
	if expired > 0 {
		o.dropped(expired)
	}
}

// reconnected queues the acks that went into another connection than the present one.
func (o *outbox) reconnected(now connEpoch) {
	o.mu.Lock()
	o.settles.acks = o.window.leave(now, o.settles.acks)
	if o.server.met(now.server, o.clock()) { // what was to arrive before may have less time
		shorten(o.settles.acks)
		o.window.shorten()
	}
	o.mu.Unlock()
	o.rouse()
}

// answered takes a receipt, or the server's word that there is nobody to give one. What was to arrive earlier than now may not
// have held.
func (o *outbox) answered(r receipt, taken bool) {
	o.mu.Lock()
	if taken {
		o.nobody.over()
	} else {
		o.nobody.said(o.clock())
		o.distrust()
	}
	n := len(o.settles.acks)
	asked := o.window.asking(r)
	acks, late := o.window.answered(r, taken, o.clock(), o.settles.acks)
	o.settles.acks = acks
	over := o.proving && noneIsOut(o.settles.acks, o.writing, o.window.count)
	if over {
		o.proving = false
	}
	o.mu.Unlock()
	if over {
		o.proven.Ring()
	}
	if len(acks) > n {
		o.rouse()
	}
	if asked != notAsked && o.settled != nil {
		o.settled(asked, refusedAcks(taken))
	}
	o.tellLate(late)
}

// deserted says whether it is to be told that nobody has taken acks for so long.
func (o *outbox) deserted(least time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nobody.tell(o.clock(), int64(least))
}

// doubtIt says that the consumer may be no more: nothing is written until it was found to be the same.
func (o *outbox) doubtIt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.distrust()
}

// distrust has the voucher called. A question that was asked before is of no use.
func (o *outbox) distrust() {
	o.doubts++
	o.sure, o.asked = connEpoch{}, connEpoch{}
	o.doubt.Ring()
}

// refusedAcks is why acks were not taken.
func refusedAcks(taken bool) error {
	if taken {
		return nil
	}
	return errNobodyTakes
}

var errNobodyTakes = errors.New("natsbroker: the server has nobody to take the acks at the moment")

// review is called after the server was heard over that connection: it has acks without a receipt sent again, the last ones asked
// for theirs, and tells which may have come too late.
func (o *outbox) review(over connEpoch, ackWait int64) {
	o.mu.Lock()
	now := o.clock()
	o.settles.acks = o.window.review(over, now, min(int64(reviewEvery), ackWait/4), o.settles.acks)
	late := overdue(o.settles.acks, now) + o.window.overdue(now)
	o.mu.Unlock()
	o.rouse()
	o.tellLate(late)
}

// pending is how many settles are not yet written.
func (o *outbox) pending() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.settles.acks) + len(o.settles.naks)
	if o.writing {
		n++
	}
	return n
}

// allTaken says whether the server is known to have taken all acks.
func (o *outbox) allTaken() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return noneIsOut(o.settles.acks, o.writing, o.window.count)
}

// noneIsOut says whether no ack is to be written, is being written, or was written and has no receipt.
func noneIsOut(acks []pendingAck, writing bool, unproven int) bool {
	return len(acks) == 0 && !writing && unproven == 0
}

// hasTaken is allTaken, and where it is not so asks for a receipt now, and rings when it is.
func (o *outbox) hasTaken() bool {
	o.mu.Lock()
	all := noneIsOut(o.settles.acks, o.writing, o.window.count)
	o.proving, o.window.hurry = !all, o.window.hurry || !all
	o.mu.Unlock()
	if !all {
		o.rouse()
	}
	return all
}

// unproven says whether there is an ack of a message of which it is not known that the server has taken it.
func (o *outbox) unproven(seq uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	is := func(a pendingAck) bool { d, ok := parseReply(a.reply); return ok && d.stream == seq }
	return slices.ContainsFunc(o.settles.acks, is) ||
		slices.ContainsFunc(o.window.batches, func(b ackBatch) bool { return slices.ContainsFunc(b.acks, is) })
}

// left is how many settles the server has not certainly received. refused: the consumer of some is not there at the moment.
func (o *outbox) left() (n int, refused bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = len(o.settles.acks) + len(o.settles.naks) + o.window.count
	if o.writing { // naks, perhaps, that come back
		n++
	}
	return n, o.window.refused()
}

// heard says that a PING was answered.
func (o *outbox) heard(p ping) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nakked.heard(p)
}

// stopped says that pulling has ended.
func (o *outbox) stopped() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop = true
}

// disconnected says that there is no connection.
func (o *outbox) disconnected() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nakked.disconnected()
}

// awaitsPong says whether naks were written, and no PING after them has been answered.
func (o *outbox) awaitsPong() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nakked.at != 0
}

// keptFromOthers says whether the server may keep messages whose naks it did not get.
func (o *outbox) keptFromOthers(ackWait int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nakked.kept(o.clock(), ackWait)
}

// letGo sends nothing again of what was written: the consumer is no more, and to one made anew under its name these settles
// would be about other messages. What was not written yet may be about its messages, which came before that was known; unless
// the consumer was not known to be the same, over the present connection: then what waits is of before it.
func (o *outbox) letGo(over connEpoch) {
	o.mu.Lock()
	late := o.window.clear()
	o.nakked = nakked{}
	if over != o.sure {
		late += overdue(o.settles.acks, never)
		o.settles.reset()
	}
	o.mu.Unlock()
	if late > 0 && o.gone != nil {
		o.gone(late)
		return
	}
	o.tellLate(late)
}

// abandon gives up all acks: nobody will take them.
func (o *outbox) abandon() {
	o.mu.Lock()
	late := overdue(o.settles.acks, never) + o.window.clear()
	o.settles.acks = o.settles.acks[:0]
	o.mu.Unlock()
	o.tellLate(late)
}

// unsaid takes all that is left, when nobody will say it any more: how many settles said nil and have not certainly reached the
// server.
func (o *outbox) unsaid() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = overdue(o.settles.acks, never) + o.window.clear()
	for _, k := range o.settles.naks {
		if k.said {
			n++
		}
	}
	o.settles = settles{}
	return n
}

func (o *outbox) tellLate(n int) {
	if n > 0 {
		o.late(n)
	}
}
