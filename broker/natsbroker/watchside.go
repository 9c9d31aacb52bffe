package natsbroker

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// watchSide is the watcher's side of the holdings.
type watchSide struct{ *holdings }

// stopped says whether no claim may begin any more.
func (s watchSide) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock.flow.stopped
}

// begin has deliveries come to a session from now on.
func (s watchSide) begin(ses *session, d durable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	k.created, k.toldBy = d.consumer.Created, d.asked.over.server
	k.from = after{floor: d.consumer.AckFloor.Stream, started: d.stream != nil}
	if d.stream != nil {
		k.from.stream = d.stream.Created
		k.log = logOf(d.stream)
	}
	k.lag.polled(d.consumer, time.Now())
	k.follow(ses)
	k.adopt(d.consumer.Config)
	if ses.pin.group != "" && k.pinID != "" { // perhaps a request of before it was known has our turn
		ses.pin.perhaps(k.pinID, k.clock.now())
		k.bells.pin.Ring()
	}
	k.pulls.revive = true
	k.outbox.vouched(d.asked)
	k.bells.pull.Ring()
}

// doubt says that the consumer did not answer.
func (s watchSide) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock.doubt()
}

// A watched is what the consumer is looked at for.
type watched struct {
	ses     *session
	pinID   string
	suspect bool      // deliveries count from the beginning
	created time.Time // of the consumer as it should be
	came    uint64    // deliveries, until then
	stream  bool      // we may ask for the stream
	paused  bool
	bare    bool // a message came without its payload, perhaps
}

// look says what is to be looked at; false: nothing.
func (s watchSide) look() (w watched, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stock.flow.fatal != nil {
		return w, false
	}
	return s.stock.watched()
}

// toVouch is look of who has something to say to the consumer: also where pulling has ended for good, unless the consumer is no
// more.
func (s watchSide) toVouch() (w watched, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses := s.stock.ses; ses != nil && ses.gone {
		return w, false
	}
	return s.stock.watched()
}

func (s *stock) watched() (w watched, ok bool) {
	if s.ses == nil {
		return w, false
	}
	return watched{s.ses, s.ses.pin.id, s.ses.suspect, s.created, s.came, s.from.started, s.flow.paused, s.bareness.doubted}, true
}

// learn takes an info, asked for after look, of the consumer as it should be.
func (s watchSide) learn(w watched, info *jetstream.ConsumerInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	k.adopt(info.Config)
	k.bareness.theirs = k.bareness.theirs || w.bare && !info.Config.HeadersOnly
	k.pulls.crowded = crowded(info)
	k.checkPin(w.ses, w.pinID, info)
	if w.suspect { // it is the same consumer: what was finished is finished
		for _, reply := range w.ses.takeLimbo() {
			k.outbox.ack(reply, k.came)
		}
	}
	k.lag.polled(info, time.Now())
	k.from.floor = info.AckFloor.Stream
	if g, ok := w.ses.at.polled(point{info.Delivered.Consumer, info.Delivered.Stream}); ok && !w.ses.ended {
		k.events.Say(broker.Event{Kind: broker.Gap, Claim: w.ses.claim, From: int64(g.from), N: g.n})
	}
}

// crowded is the consumer's max_waiting, where no more requests than wait there now are taken; 0: some would be.
func crowded(info *jetstream.ConsumerInfo) int {
	if info.NumWaiting < info.Config.MaxWaiting {
		return 0
	}
	return info.Config.MaxWaiting
}

// adoptStream takes the settings of a session's stream as it is. What was replaced, or is of another subject, stays missing when
// that is over.
func (s watchSide) adoptStream(ses *session, sc jetstream.StreamConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses.at.exact = ses.at.exact && takesAll(ses.at.filter, sc) && !replaces(sc)
}

// witnesses are those by which to find out whether the stream has lost its end since the connection, or the consumer, was last in
// doubt; and which delivery was the newest then.
func (s watchSide) witnesses() (ws witnesses, nth uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock.witnesses(&ws, s.stock.older)
	s.outbox.witnesses(&ws, s.stock.older)
	return ws, s.stock.older
}

// vouched takes an info, asked for after look, of the consumer as it should be, over a new connection.
func (s watchSide) vouched(w watched, q question, info *jetstream.ConsumerInfo) {
	s.forgot(info.Delivered.Stream, w.came)
	s.outbox.vouched(q)
	s.stock.bells.pull.Ring()
}

// forgot takes that the server knows of no delivery behind delivered, of the first nth.
func (s watchSide) forgot(delivered, nth uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock.forgot(delivered, nth)
	s.outbox.forgot(delivered, nth)
}

// from is from where to go on when the consumer is lost.
func (s watchSide) from() after {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock.from
}

// fence ends a session whose consumer is gone: settles say broker.ErrLost from now on. fatal is what Receive returns from now on;
// nil where another session follows. over is the present connection. false: it has ended already, by the pinner (then the next
// look tells again) or by Close.
func (s watchSide) fence(ses *session, over connEpoch, fatal error) (old *inbox, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	if k.ses != ses || ses.ended {
		return nil, false
	}
	k.forgetConsumer(ses, over)
	if fatal != nil {
		k.flow.fatal = fatal
	}
	old = k.leave()
	k.receiver.rouse()
	return old, !k.flow.closing
}

// mostDrift bounds by how much later a server that was started again tells that a consumer was created. Up to 2.11 it is its own
// time until then, and that of the consumer's file afterwards, which is written next (addConsumerWithAssignment of nats-server,
// ConsumerStore).
const mostDrift = time.Second

// same says whether an info that a server gave is of the consumer as it should be: as it was when the server was asked, or as it
// is.
func (s watchSide) same(was time.Time, info *jetstream.ConsumerInfo, server string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	later := info.Created.Sub(k.created)
	switch {
	case later == 0 || info.Created.Equal(was):
		return true
	case server == k.toldBy || later < 0 || later > mostDrift:
		return false
	}
	k.created, k.toldBy = info.Created, server
	return true
}

// created is when the consumer was created, as it should be.
func (s watchSide) created() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock.created
}

// deserted says whether it is to be told that nobody has taken pulls for so long.
func (s watchSide) deserted(least time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	return k.pulls.nobody.tell(k.clock.now(), int64(least))
}
