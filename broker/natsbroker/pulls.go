package natsbroker

import (
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// pulls is what is asked for, by which inbox it comes, and when it may be asked again. It does no I/O. Not safe for concurrent
// use.
type pulls struct {
	credit
	meter      pullMeter
	barren     barren
	in         *inbox
	heard      uint64        // answers, with a message or without
	revive     bool          // the requests are void: a round trip, a new inbox, then pull again
	notBefore  int64         // the next pull
	lastSent   int64         // when the last one was sent
	wakes      int64         // when the puller looks again by itself
	maxExpires time.Duration // of a pull, by the consumer's settings; 0: no limit
	crowded    int           // the consumer's max_waiting, where so many requests waited there at the last look; 0: fewer
	unasked    seldom        // deliveries that answered no request and were given back
	refused    seldom        // requests that were refused
	nobody     nobody        // to take them
	lingers    []*inbox      // left, and still listened to; see linger
	count      uint64        // the newest delivery's consumer sequence, where the inbox was left; 0: nothing is known of it
}

// An inbox is the subscription to which pulls are answered. A new one is made when the old one's requests are void, so that what
// the server still sends to them is not taken for an answer to new ones.
type inbox struct {
	ses     *session
	sub     *nats.Subscription
	nc      *nats.Conn // of sub
	last    uint64     // consumer sequence of the newest delivery
	prefix  string     // requests carry prefix and a number as their reply subject
	retired bool       // it answers no request that counts; as owed, the pulls' own
	owed    int        // of a retired one, how many messages it had been asked for and had not brought
	stood   bool       // its newest request is of one that stands by: it has no pin's id
	until   int64      // of one that lingers, when its requests are over
	doubted bool       // perhaps the server has crashed since it was entered
}

// drain takes an inbox's requests away from the server. What was sent already is still received; what the server finds no one
// waiting for, it delivers again at once.
func (b *inbox) drain() {
	if b != nil && b.sub != nil {
		unlisten(b.nc, b.sub)
	}
}

// mayBePinned says whether a request that was sent with this inbox may still be pinned by the server.
func (b *inbox) mayBePinned() bool { return b != nil && b.stood && b.owed > 0 }

// inboxes are some of them.
type inboxes []*inbox

func (bs inboxes) mayBePinned() bool { return slices.ContainsFunc(bs, (*inbox).mayBePinned) }

func (bs inboxes) drain() {
	for _, b := range bs {
		b.drain()
	}
}

// enter has pulls answered at an inbox, and returns the one before, to be drained.
func (p *pulls) enter(b *inbox) (old *inbox) {
	old = p.leave()
	p.in, b.ses.back = b, false
	b.last, p.count = p.count, 0
	return old
}

// leave voids the requests, and returns their inbox, to be drained. The next one goes on counting, unless the server may have
// crashed.
func (p *pulls) leave() (old *inbox) {
	old, p.in = p.in, nil
	if old != nil {
		old.retired, old.owed = true, p.asked
		if !old.doubted {
			p.count = old.last
		}
	}
	p.reset()
	p.meter.void()
	return old
}

// mostLinger bounds the inboxes that linger: a consumer can be made anew, and a source be paused, again and again.
const mostLinger = 8

// linger has an inbox that was left listened to until its requests are over, where one of them may be pinned: it is of one who
// stood by, and a consumer made anew under the same name answers it as well. The sequence, where it is not listened to: the
// request is with the server, or on its way; we are paused, or hear of the new consumer, and let go of the inbox; the server pins
// the request just then, for nobody, and all wait until the pin's time is over. It returns the one to be drained instead.
func (p *pulls) linger(old *inbox, until int64) *inbox {
	if !old.mayBePinned() {
		return old
	}
	old.until = until
	p.lingers = append(p.lingers, old)
	if len(p.lingers) <= mostLinger {
		return nil
	}
	old, p.lingers = p.lingers[0], p.lingers[1:]
	return old
}

// mayBePinned says whether a request may still be pinned by the server.
func (p *pulls) mayBePinned() bool {
	return p.in != nil && p.in.stood && p.asked > 0 || inboxes(p.lingers).mayBePinned()
}

// lingered is those whose requests are over by now.
func (p *pulls) lingered(now int64) (over inboxes) {
	p.lingers = slices.DeleteFunc(p.lingers, func(b *inbox) bool {
		done := b.owed <= 0 || now >= b.until
		if done {
			over = append(over, b)
		}
		return done
	})
	return over
}

// doubt says that the server may have crashed, and have forgotten what it delivered last.
func (p *pulls) doubt() {
	p.count = 0
	if p.in != nil {
		p.in.doubted = true
	}
}

// leaveAll is leave, of those that linger, too.
func (p *pulls) leaveAll() (old inboxes) {
	old, p.lingers = append(p.lingers, p.leave()), nil
	return old
}

// lost says that the connection is another, or gone.
func (p *pulls) lost() {
	p.revive = true
	p.doubt()
	p.barren.over()
	p.nobody.over()
}

// came takes the arrival of a message of a size, and says whether there is a request that it may answer.
func (p *pulls) came(b *inbox, size int) (asked bool) {
	p.heard++
	p.barren.over()
	p.nobody.over()
	if b.retired {
		b.owed--
		return b.owed >= 0
	}
	asked = p.asked > 0
	p.arrived(size)
	return asked
}

// over is which requests have ended since the last look, where somebody measures them.
func (p *pulls) over(id uint64, st status) []endedPull {
	if !p.meter.on {
		return nil
	}
	return p.meter.answered(p.requests, id, st)
}

// mayPull says whether requests count, and may be sent now.
func (p *pulls) mayPull(now int64) bool {
	return p.in != nil && !p.revive && now >= max(p.notBefore, p.barren.until)
}

const (
	// smallEvery is how much time passes between two pulls of which the second is small, and tinyEvery where it is for less than
	// tinyShare of the budget. Of places that are free for a moment longer a few more stay empty: half of that share, where there
	// are no more places than workers.
	smallEvery = 2 * time.Millisecond
	tinyEvery  = 10 * time.Millisecond
	tinyShare  = 16
)

// free is how much of the budget is.
func (p *pulls) free() int {
	here, _ := p.here()
	return p.gate.Budget().Messages - here
}

// small says that little of the budget is free: who pulls now asks for a few messages, and a moment later for a few more.
func (p *pulls) small() bool { return p.asked == 0 && p.free() < p.quarter() }

// rest is how long a small pull is to wait. wake: nobody has been told to look then, or sooner; the caller does that. Where the
// budget is used up each ack would else be followed by a pull, and by an answer of the server with the few messages that it asked
// for.
func (p *pulls) rest(now int64) (d time.Duration, wake bool) {
	until := p.lastSent + int64(smallEvery)
	if p.free() < p.gate.Budget().Messages/tinyShare {
		until = p.lastSent + int64(tinyEvery)
	}
	if now >= until {
		return 0, false
	}
	if wake = p.wakes <= now || p.wakes > until; wake {
		p.wakes = until
	}
	return time.Duration(until - now), wake
}

// mayRevive says whether it is time for a new inbox.
func (p *pulls) mayRevive(now int64) bool {
	return (p.revive || p.in == nil) && now >= p.barren.until
}
