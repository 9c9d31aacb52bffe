package natsbroker

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// How one process at a time gets messages, and gets them in order.
//
// With Options.Ordered the consumer has a priority group with the policy pinned_client (nats-server 2.11, ADR-42). The server
// pins the first request of the group that it answers: it tells the pin's id with each message (Nats-Pin-Id), from then on serves
// only requests that carry it, and keeps all others waiting. The pin goes when no request with its id came for priority_timeout,
// by the UNPIN request, and when the consumer gets another leader or the server starts again, for it is kept in memory
// (consumer.go of nats-server: nextWaiting, processNextMsgRequest, setPinnedTimer, unassignPinId). A request with another id is
// answered by 423.
//
// A pin alone is no order. It says who gets the next message, not what became of those that the one before has: these are
// redelivered when their ack wait is over, and new ones are delivered before that. The sequence: A has 1 to 100, the pin goes, B
// is pinned and gets 101, and 50, of the same key, comes from A half a minute later. So whoever is pinned gathers first: it hands
// out nothing until all that the server counts as unsettled is here, in the order of the stream. The server sends what is to be
// redelivered before anything new.
const (
	pinHeader = "Nats-Pin-Id"
	// pinGroup is the priority group of a consumer that we create.
	pinGroup = "longshore"
	// pinVersion is the first server that pins.
	pinVersion = "2.11"
)

// pin is a session's part in the priority group, and decides what to do about it. All times are the source's clock's. It does no
// I/O. Not safe for concurrent use.
type pin struct {
	group string // in which one process at a time is pinned; empty: all get messages
	ttl   int64  // of the consumer as it is

	id     string // of ours; empty: we stand by
	seen   int64  // when the server last certainly kept it for us
	unread int64  // since when it may be ours by an id that we did not read here, which is then to be learned; 0: it is not so
	expect string // that id, where it was read before this session began; empty: it came with headers that cannot be read
	lost   error  // why the session is ending
	by     int64  // when a session that is ending ends; 0: that was not announced

	gathering bool
	want      int    // how many to ask for, to gather
	twice     int    // deliveries since then of what is here
	last      uint64 // the consumer sequence of the newest delivery
	again     bool   // the newest delivery was not its message's first
	arrived   int64  // when it came

	balance balance

	unsure uint64 // the newest delivery by the server's count, where it is not one that came here
	since  int64  // since when it is

	renewed int64 // when the pin was last asked for
	freed   bool  // unpinned, at Stop
}

// next says what to ask for now.
func (p *pin) next(c *credit) (request, bool) {
	switch {
	case p.lost != nil:
	case p.id == "": // one is enough to learn that it is our turn, and all that may come out of order
		here, _ := c.here()
		return request{c.lastID + 1, 1, 0}, c.asked == 0 && here < c.gate.Budget().Messages
	case p.gathering:
		r := request{c.lastID + 1, p.want, min(c.gate.Budget().Bytes, mostUnderWay)}
		if c.maxBatch > 0 {
			r.batch = min(r.batch, c.maxBatch)
		}
		if c.maxBytes > 0 {
			r.bytes = min(r.bytes, c.maxBytes)
		}
		if r.batch == 1 || c.floor > r.bytes { // a single one may be larger
			r.batch, r.bytes = 1, 0
		}
		return r, p.want > 0 && c.asked == 0
	default:
		return c.next()
	}
	return request{}, false
}

// A count is what the server says of what is unsettled.
type count struct {
	last    uint64 // the consumer sequence of the newest delivery
	pending int    // delivered and not settled
}

// missing is how many messages are neither settled nor here, and may stand before what is here. sure: it is not less than that.
//
// While we are pinned each delivery comes to us. So when the server had made no other delivery than have come here by now, what
// it counts and we do not have is elsewhere: out with the process before, or given back by it, or on its way to the server as our
// ack. A delivery that does not come for a quarter of the ack wait is taken for lost; what was in it is counted. Nor is a count
// waited for longer that is behind what came here: somebody has reset the consumer, and it begins anew.
func (p *pin) missing(c count, here int, now, ackWait int64) (n int, sure bool) {
	if c.last != p.unsure {
		p.unsure, p.since = c.last, now
	}
	return max(c.pending-here, 0), c.last == p.last || p.late(now, ackWait)
}

// late says that the server's count of deliveries is another than ours for so long that it stays so.
func (p *pin) late(now, ackWait int64) bool {
	return now-p.since >= ackWait/4 && now-p.arrived >= ackWait/4
}

// isLost says whether the deliveries up to one, which did not come, are taken for lost.
func (p *pin) isLost(last uint64, now, ackWait int64) bool {
	return last == p.unsure && p.late(now, ackWait)
}

// gatherPause is how long to wait before asking for another message, where that may be a new one: what is missing is out with
// somebody.
func gatherPause(ackWait int64) int64 {
	return min(max(ackWait/16, int64(20*time.Millisecond)), int64(time.Second))
}

// wants says how many messages to ask for when n are missing.
func (p *pin) wants(n int, sure bool, now, pause int64) int {
	switch {
	case n > 0 && sure && p.again:
		// What is to be redelivered comes before all else, so the others do, too. Some of that may be here, when we are slow
		// ourselves: of what waits for its lease, the whole of it may stand before what is missing. So it is asked for more each time.
		return n + 2*p.twice
	case n > 0 && now-p.arrived >= pause:
		return 1
	}
	return 0
}

// term is for how long after its last sign the pin is relied upon. The server keeps it for ttl, and messages for ackWait, from a
// later moment.
func term(ackWait, ttl int64) int64 { return min(ackWait, ttl) }

// doubtful says that the server has been silent for so long that nothing more may be started: at the end of the term another
// process may begin.
func (p *pin) doubtful(now, term int64) bool { return p.id != "" && now-p.seen >= term*3/4 }

// defaultPinTTL is the server's, where a consumer does not say its own.
const defaultPinTTL = 2 * time.Minute

// pinTTL is the priority_timeout of a consumer with such an ack wait: when the server takes the pin from a process that died,
// all that it had has come back already.
func pinTTL(ackWait time.Duration) time.Duration { return ackWait + ackWait/4 }

// renewEvery is how often a pin is asked for: more than once in the quarter of AckWait that pinTTL has in addition.
func renewEvery(term int64) time.Duration { return time.Duration(term / 5) }

// renewal is a request that keeps the pin and gets no message: none fits into a byte. The server ends it at once, and so tells
// that it came.
func renewal(group, id string) []byte {
	return request{batch: 1, bytes: 1}.body(time.Millisecond, 0, group, id)
}

// takePinID takes the pin's id out of a message's headers: it is not the producer's.
func takePinID(h nats.Header) string {
	vs := h[pinHeader]
	if len(vs) == 0 {
		return ""
	}
	// The server puts its own after those of the message.
	if len(vs) == 1 {
		delete(h, pinHeader)
	} else {
		h[pinHeader] = vs[:len(vs)-1]
	}
	return vs[len(vs)-1]
}

// takePin is takePinID of a message, and says how large the message is for the pull that it answers: the server counts it before
// it writes the id.
func takePin(m *nats.Msg) (id string, size int) {
	size = m.Size()
	if id = takePinID(m.Header); id != "" {
		size -= len(pinHeader) + len(": ") + len(id) + len("\r\n")
		if len(m.Header) == 0 {
			size -= len("NATS/1.0\r\n\r\n")
		}
	}
	return id, size
}

// unreadable says that the headers of a message cannot be read: nats.go hands it on without any.
func unreadable(m *nats.Msg) bool {
	return m.Header == nil && m.Size() > len(m.Subject)+len(m.Reply)+len(m.Data)
}

// pinnedNow is the id of whoever is pinned.
func pinnedNow(info *jetstream.ConsumerInfo) string {
	for _, g := range info.PriorityGroups {
		if g.PinnedClientID != "" {
			return g.PinnedClientID
		}
	}
	return ""
}

// pinned is the group in which cc pins clients; empty: it does not.
func pinned(cc jetstream.ConsumerConfig) string {
	if cc.PriorityPolicy != jetstream.PriorityPolicyPinned || len(cc.PriorityGroups) == 0 {
		return ""
	}
	return cc.PriorityGroups[0]
}

// canPin says whether a server of that version can pin. One that does not say its version as we know it is asked.
func canPin(version string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n < 2 || major > 2 || (major == 2 && minor >= 11) {
		return nil
	}
	return fmt.Errorf("the server is %s: an order over several processes needs nats-server %s or later, with priority groups. "+
		"For an order within one process, create the consumer without one", version, pinVersion)
}

var errNotPinned = fmt.Errorf("the server created it without its priority group: "+
	"an order over several processes needs nats-server %s or later, on each server", pinVersion)

// Why a session ends while its consumer is there.
var (
	errPinTaken   = errors.New("another process is pinned now")
	errPinSilent  = errors.New("the server has not confirmed the pin")
	errPinPaused  = errors.New("paused: another process may go on")
	errPinBegins  = errors.New("it got a priority group: from now on one process at a time is pinned")
	errPinRenamed = errors.New("its priority group has another name now")
)

// standsBy says that another process is pinned, or nobody yet.
func (p *pin) standsBy() bool { return p.group != "" && (p.id == "" || p.lost != nil) }

// got takes the id of the pin that came with a delivery: it is our turn, and what is missing is to be gathered first.
func (p *pin) got(id string, contact int64) { p.id, p.seen, p.gathering = id, contact, true }

// perhaps says that it may be our turn, by an id that did not come as the session's own; empty: it could not be read.
func (p *pin) perhaps(id string, now int64) { p.unread, p.expect = now, id }

// A pinQuestion is for what the server is asked whom it pins.
type pinQuestion struct {
	unread int64
	expect string
}

func (p *pin) question() pinQuestion { return pinQuestion{p.unread, p.expect} }

// learned takes the id of whoever was pinned when q was asked, and says whether it is ours: the server keeps a pin for ttl from
// when it was given. Where another question has come up meanwhile, that is still to be asked. The sequence: the consumer that was
// made anew is asked for an earlier id; it pins us, for a request that it got before; the answer is of before that.
func (p *pin) learned(q pinQuestion, id string, now int64) (ours bool) {
	if q != p.question() {
		return false
	}
	ours = p.id == "" && p.unread != 0 && id != "" && now-p.unread < p.ttl && (p.expect == "" || p.expect == id)
	p.unread, p.expect = 0, ""
	return ours
}

// delivered takes a delivery while we are pinned; twice: it is of a message that is here.
//
// While we are pinned each delivery comes to us, and the server counts them. Where the count has a hole, what is missing was on
// its way when the connection went, or was sent to a request of an earlier connection, which the server takes for alive. It comes
// again by its ack wait, and what has just come may stand behind it.
func (p *pin) delivered(d delivery, now int64, twice bool) {
	if p.last != 0 && d.consumer > p.last+1 {
		p.gathering = true
		p.passed(d.consumer - 1)
	}
	p.last, p.again, p.arrived = max(p.last, d.consumer), d.delivered > 1, now
	if d.delivered == 1 {
		p.balance.firsts++
	}
	if p.gathering && twice {
		p.twice++
	}
}

// passed takes that the deliveries up to one, which did not come, will not come: they may have been first ones.
func (p *pin) passed(consumer uint64) {
	if consumer > p.last {
		p.balance.firsts += int(consumer - p.last)
		p.last = consumer
	}
}

// regather has nothing handed out until all that is unsettled is here, and says whether that is anew to be looked after.
func (p *pin) regather() bool {
	if p.id == "" || p.lost != nil {
		return false
	}
	p.gathering = true
	return true
}

// A pinAction is what there is to do about the pin.
type pinAction int

const (
	pinRest   pinAction = iota
	pinRevoke           // it is lost: say so
	pinEnd              // and now the session is over
	pinFree             // it is not needed
	pinRenew            // it is time
	pinGather
	pinLearn // whose id it is
)

// pinView is what there is beside the pin.
type pinView struct {
	now, ackWait int64
	out, ready   int  // of the session
	givesBack    bool // what is not handed out goes back
}

// action says what to do, and when to look again.
func (p *pin) action(v pinView) (pinAction, time.Duration) {
	every := renewEvery(term(v.ackWait, p.ttl))
	switch {
	case p.lost != nil && p.by == 0:
		return pinRevoke, 0
	case p.lost != nil && (v.out == 0 || v.now >= p.by):
		return pinEnd, 0
	case p.lost != nil:
		return pinRest, min(time.Duration(p.by-v.now), every)
	case p.id == "" && p.unread != 0:
		return pinLearn, min(time.Duration(gatherPause(v.ackWait)), every)
	case p.id == "" || p.freed:
		return pinRest, every
	case v.givesBack && v.out == 0 && v.ready == 0:
		return pinFree, 0
	case v.now-p.renewed >= int64(every):
		return pinRenew, 0
	case p.gathering && !v.givesBack:
		return pinGather, min(time.Duration(gatherPause(v.ackWait)), every)
	}
	return pinRest, max(every-time.Duration(v.now-p.renewed), time.Millisecond)
}

// revoke says until when what runs may go on, when the pin is lost.
func (p *pin) revoke(now, term int64, wait time.Duration) (by int64) {
	p.by = now + min(int64(wait), math.MaxInt64-now)
	if errors.Is(p.lost, errPinSilent) { // then they may run elsewhere
		p.by = min(p.by, max(p.seen+term, now))
	}
	return p.by
}

// A mark is how things stood here when the server was asked what it counts.
type mark struct {
	done  int    // acked here
	taken bool   // and the server had taken all of these acks
	last  uint64 // the newest delivery
}

// exact says whether no ack of ours was on its way while the server counted. Else one that it takes a moment later looks like
// what another process settles; and it makes up for what another process did settle.
func (p *pin) exact(m mark) bool { return m.taken && m.done == p.balance.done }

// A gatherStep is what a look at the server's count comes to.
type gatherStep int

const (
	gatherOn   gatherStep = iota // something is missing, or may be
	gatherBack                   // it may be, and is not where nothing of what waits here was settled by others: that goes back
	gatherDone
)

// present is what of the consumer's messages is here, and stands above what the server has settled to the last one.
type present struct {
	all        int
	ready, out int // of these, what others may have settled: waiting, and handed out
}

// gathered takes what the server counts, and what of it is here, and says whether all of it is; exact: the count can tell. Where
// something is missing, next asks for more.
//
// What others may have settled goes back only when nothing else is missing: with each of their acks it would else count as
// delivered once more. For the same reason it goes back not again within an ack wait where nothing can be missing: then what
// they settled runs twice. What is out cannot go back: what may be missing is asked for, and what is out waited for.
func (p *pin) gathered(c count, h present, exact bool, now, ackWait int64) gatherStep {
	n, sure := p.missing(c, h.all, now, ackWait)
	if n > 0 || !sure || !exact {
		p.want = p.wants(n, sure, now, gatherPause(ackWait))
		return gatherOn
	}
	p.want = 0
	hidden := p.balance.hidden(h.ready + h.out)
	most := c.pending - h.all + hidden
	switch b := &p.balance; {
	case hidden == 0, most <= 0 && (h.out > 0 || b.asked != 0 && now-b.asked < ackWait):
	case h.out > 0:
		p.want = p.wants(most, sure, now, gatherPause(ackWait))
		return gatherOn
	default:
		b.asked = now
		return gatherBack
	}
	p.gathering = false
	p.passed(c.last) // what was taken for lost is no hole
	return gatherDone
}

// behind says that the count is of before the newest delivery that is here, and soon there will be a better one. Where it stays
// behind, that is not looked for again at once.
func (p *pin) behind(c count, m mark, now, ackWait int64) bool {
	return c.last < p.last && (m.last < p.last || now-p.since < gatherPause(ackWait))
}

// asked says that what next said was sent.
func (p *pin) asked() { p.want, p.twice = 0, 0 }

// free is for a pin that is not needed any more, and says whether it is ours for certain; else it would be taken from another.
func (p *pin) free(now, term int64) (ours bool) {
	ours = p.isOurs(now, term)
	p.freed = true
	return ours
}

// isOurs says that it is ours for certain.
func (p *pin) isOurs(now, term int64) bool {
	return p.id != "" && p.lost == nil && !p.freed && !p.doubtful(now, term)
}
