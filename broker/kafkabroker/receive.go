package kafkabroker

import (
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Receive hands out messages. See broker.Source.
func (s *Source) Receive(dst []broker.Message) (int, error) {
	if len(dst) == 0 {
		return 0, errors.New("kafkabroker: receiving: dst is empty")
	}
	for {
		l, err := s.lend(len(dst))
		if err != nil {
			return 0, err
		}
		if l.p == nil {
			<-s.wake
			continue
		}
		l.decode(dst)
		if n := s.take(&l, dst); n > 0 {
			return n, nil
		}
	}
}

// A loan is a partition's prefetch while Receive decodes from it, without the lock.
type loan struct {
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

// lend takes the prefetch of the next partition in turn. p is nil when there is nothing to do now.
func (s *Source) lend(n int) (l loan, err error) {
	now := time.Now()
	lapsed := now.Sub(s.m.contact()) >= s.cfg.SessionTimeout
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return l, fmt.Errorf("kafkabroker: receiving: %w", broker.ErrClosed)
	}
	if s.fatal != nil {
		return l, fmt.Errorf("kafkabroker: receiving: %w", s.fatal)
	}
	if lapsed { // as after SIGSTOP: first hear what is still ours
		return l, nil
	}
	free, bytes, ok := s.gate.Room()
	if !ok {
		return l, nil
	}
	alone := s.alone(now)
	for range s.turns {
		s.turn = (s.turn + 1) % len(s.turns)
		p := s.turns[s.turn]
		if p.cur == nil || !p.ready(now) || p.behindStale() {
			continue
		}
		if (alone || p.careful > 0) && !s.mayGo(p, alone) {
			continue
		}
		if p.careful > 0 {
			n = 1
		}
		p.busy = true
		return loan{p: p, d: p.cur, version: p.version, n: min(n, free, p.tr.room(p.scan)), bytes: bytes}, nil
	}
	return l, nil
}

// decode fills dst. It is the loan's only user.
func (l *loan) decode(dst []broker.Message) {
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

// take gives the loan back, marks the messages that may go out and closes up dst.
func (s *Source) take(l *loan, dst []broker.Message) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := l.p
	p.busy = false
	if p.shut {
		signal(s.kick) // the loop waits for us
	}
	if p.version != l.version || p.shut || s.stopped || s.pauses.Has(p.topic) {
		return 0 // it was rewound, or is not ours to hand out any more
	}
	var bytes int64
	for i := range l.got {
		m := &dst[i]
		size := int64(len(m.Key) + len(m.Value) + len(m.Headers.Raw))
		if !p.vet(m.Offset) {
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
		m.Token, m.Claim = tok, p.claim
		if n != i {
			dst[n] = *m
		}
		n++
		bytes += size
	}
	clear(dst[n:l.got])
	s.gate.HandOut(n, bytes)
	s.progress(l)
	return n
}

// progress notes how far the decoder has come.
func (s *Source) progress(l *loan) {
	p := l.p
	at := l.d.at
	if be := (*batchError)(nil); errors.As(l.err, &be) {
		at = max(p.scan, min(be.offset, l.d.at))
	}
	if gone := p.tr.pass(p.scan, at); gone > 0 { // given back, and compacted away since
		s.say(broker.Event{Kind: broker.Gap, Claim: p.claim, From: p.scan, N: gone, Err: errCompacted})
	}
	p.scan = max(p.scan, at)
	p.epoch = max(p.epoch, l.d.epoch)
	if l.err != nil {
		s.undecodable(p, l.err)
		return
	}
	if l.d.at > l.d.from {
		p.idle = 0
	} else if l.over {
		p.fruitless(time.Now())
		signal(s.kick) // the loop waits for it
	}
	left := int64(len(l.d.raw) + l.d.body.left())
	s.gate.Hold(0, left-p.curBytes)
	p.curBytes = left
	if l.over {
		p.cur, p.pos = nil, p.scan
		s.schedule()
	}
}

var errCompacted = errors.New("messages that were given back are not in the log any more")

// undecodable does what the policy says of a batch. It is fetched once more before: it may have been spoiled on its way, or be
// newer than what the answer tells of the log.
func (s *Source) undecodable(p *part, err error) {
	err = fmt.Errorf("%s/%d: %w", p.topic, p.no, err)
	var be *batchError
	errors.As(err, &be)
	from := p.scan
	switch {
	case p.suspect != from+1 && errors.Is(err, errAhead):
		p.suspect = from + 1
		p.drop()
		s.schedule()
	case p.suspect != from+1:
		p.suspect = from + 1
		p.drop()
		p.retryAt = time.Now().Add(retryWait)
		s.say(broker.Event{Kind: broker.Warning, Claim: p.claim, Err: err})
		signal(s.kick)
	case s.cfg.SkipUndecodable:
		gone := p.jump(max(be.next, from+1))
		s.say(broker.Event{Kind: broker.Gap, Claim: p.claim, From: from, N: gone, Err: err})
		s.schedule()
	default:
		s.fatal = err
	}
}
