package kafkabroker

import (
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// An intake decides what Receive hands out.
type intake struct {
	*shared
	r *roster
}

// A decodeLease is a partition's prefetch while Receive decodes from it, without the lock.
type decodeLease struct {
	p       *part
	d       *decoder
	version int
	n       int   // messages at most
	bytes   int64 // stop when so many are reached
	// What came of it.
	got  int
	over bool // the decoder has no more
	err  error
}

// lend takes the prefetch of the next partition in turn. p is nil when there is nothing to do now. lapsed: nobody has answered
// for a session.
func (x *intake) lend(n int, now time.Time, lapsed bool) (l decodeLease, err error) {
	l, err = x.choose(n, now, lapsed)
	x.waits = l.p == nil
	if x.waits && x.left {
		x.left = false
		signal(x.bells.kick)
	}
	return l, err
}

func (x *intake) choose(n int, now time.Time, lapsed bool) (l decodeLease, err error) {
	if x.stopped {
		return l, fmt.Errorf("kafkabroker: receiving: %w", broker.ErrClosed)
	}
	if x.fatal != nil {
		return l, fmt.Errorf("kafkabroker: receiving: %w", x.fatal)
	}
	if lapsed { // as after SIGSTOP: first hear what is still ours
		return l, nil
	}
	free, bytes, ok := x.gate.Room()
	if !ok {
		return l, nil
	}
	alone := x.solo.on(x.r.turns, x.gate.Out(), now, func(p *part) bool { return x.ready(p, now) })
	for range x.r.stock {
		p := x.r.rotate()
		if p == nil {
			break
		}
		if !x.ready(p, now) || x.behindStale(p) {
			continue
		}
		if (alone || p.careful > 0) && !x.solo.mayGo(p, alone, x.gate.Out()) {
			continue
		}
		if p.careful > 0 {
			n = 1
		}
		p.busy = true
		return decodeLease{p: p, d: p.cur, version: p.version, n: min(n, free, p.tr.room(p.scan)), bytes: bytes}, nil
	}
	return l, nil
}

// decode fills dst. It is the lease's only user.
func (l *decodeLease) decode(dst []broker.Message) {
	var r record
	for size := int64(0); l.got < l.n && size < l.bytes; l.got++ {
		more, err := l.d.next(&r)
		if !more {
			l.over, l.err = err == nil, err
			return
		}
		r.fill(&dst[l.got], l.p.topic, l.p.no)
		size += r.size()
	}
}

// take ends the lease, marks the messages that may go out and closes up dst. hungry: there may be something to fetch now. Whoever
// planned a fetch meanwhile passed the partition by: what was given back, say, while Receive decoded what comes after it.
func (x *intake) take(l *decodeLease, dst []broker.Message, now time.Time) (n int, hungry bool) {
	l.p.busy = false
	n = x.handOut(l, dst, now)
	hungry = l.p.cur == nil
	if x.left && !hungry {
		signal(x.bells.kick)
	}
	x.left = false
	return n, hungry
}

func (x *intake) handOut(l *decodeLease, dst []broker.Message, now time.Time) (n int) {
	p := l.p
	if p.stage != open {
		signal(x.bells.kick) // the loop waits for us
	}
	if p.version != l.version || p.stage != open || x.stopped || x.pauses.Has(p.topic) {
		return 0 // it was rewound, or is not ours to hand out any more
	}
	var bytes int64
	for i := range l.got {
		m := &dst[i]
		size := int64(len(m.Key) + len(m.Value) + len(m.Headers.Raw))
		if !x.solo.vet(p, m.Offset) {
			clear(dst[:l.got])
			return 0
		}
		tok, ok := p.tr.offer(m.Offset, uint32(size))
		if !ok {
			continue
		}
		if len(p.tr.runs) > 0 {
			if runs := p.tr.runs[m.Offset]; runs > 0 {
				m.Runs, m.Attempt = runs, runs+1
			}
		}
		if p.mark == running && m.Offset == p.killer {
			m.Crashes = p.crashes
		}
		m.Token, m.Claim, m.Name = tok, p.claim, p.log
		if n != i {
			dst[n] = *m
		}
		n++
		bytes += size
	}
	clear(dst[n:l.got])
	x.gate.HandOut(n, bytes)
	x.progress(l, now)
	return n
}

// progress notes how far the decoder has come.
func (x *intake) progress(l *decodeLease, now time.Time) {
	p := l.p
	at := l.d.at
	if be := (*batchError)(nil); errors.As(l.err, &be) {
		at = max(p.scan, min(be.offset, l.d.at))
	}
	if gone := p.tr.pass(p.scan, at); gone > 0 { // given back, and compacted away since
		x.events.Say(broker.Event{Kind: broker.Gap, Claim: p.claim, From: p.scan, N: gone, Err: errCompacted})
	}
	p.scan = max(p.scan, at)
	p.epoch, p.top = max(p.epoch, l.d.epoch), max(p.top, p.scan)
	if l.err != nil {
		x.undecodable(p, l.err, now)
		return
	}
	if l.d.at > l.d.from {
		p.idle = 0
	} else if l.over {
		p.fruitless(now)
		signal(x.bells.kick) // the loop waits for it
	}
	p.left(int64(len(l.d.raw) + l.d.body.left()))
	if l.over {
		p.done()
	}
}

var errCompacted = errors.New("messages that were given back are not in the log any more")

// undecodable does what the policy says of a batch. It is fetched once more before, of the leader: it may have been spoiled on
// its way, or on a replica's disk, or be newer than what the answer tells of the log.
func (x *intake) undecodable(p *part, err error, now time.Time) {
	err = fmt.Errorf("%s/%d: %w", p.topic, p.no, err)
	var be *batchError
	errors.As(err, &be)
	from := p.scan
	switch {
	case p.spoiltAt != from+1 && errors.Is(err, errAhead):
		p.spoiltAt = from + 1
		p.drop()
	case p.spoiltAt != from+1:
		p.spoiltAt = from + 1
		p.putOff(now.Add(retryWait))
		p.drop()
		x.events.Say(broker.Event{Kind: broker.Warning, Claim: p.claim, Err: err})
		signal(x.bells.kick)
	case x.cfg.SkipUndecodable:
		gone := p.jump(from, max(be.next, from+1))
		x.events.Say(broker.Event{Kind: broker.Gap, Claim: p.claim, From: from, N: gone, Err: err})
	default:
		x.fail(err)
	}
}
