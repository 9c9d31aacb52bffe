package membroker

import (
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Receive hands out messages. See broker.Source.
func (s *Source) Receive(dst []broker.Message) (int, error) {
	if len(dst) == 0 {
		return 0, errors.New("membroker: receiving: dst is empty")
	}
	for {
		s.frozen()
		g, starved, err := s.handOut(len(dst))
		if err != nil {
			return 0, err
		}
		if g.n > 0 {
			g.fill(dst)
			if s.mutant.is(errorWithMessages) {
				return g.n, errors.New("membroker: mutant")
			}
			return g.n, nil
		}
		if starved {
			<-s.wake
			continue
		}
		got, due, err := s.ask()
		if err != nil {
			return 0, err
		}
		if !got {
			s.await(due)
		}
	}
}

// A grant is what was handed out, before it is copied.
type grant struct {
	sp  span
	gen uint16
	cs  *claimState
	n   int
}

func (g *grant) fill(dst []broker.Message) {
	partition := g.cs.claim.Partition
	for i := range g.n {
		o := g.sp.from + int64(i)
		m := &dst[i]
		*m = *g.sp.at(o)
		m.Partition, m.Offset = partition, o
		m.Attempt, m.Runs = g.sp.attempt, g.sp.runs
		m.Token, m.Claim = token(o, g.gen), g.cs.claim
	}
}

// handOut takes messages out of the prefetch of the next claim in turn. starved: there is no budget for any.
func (s *Source) handOut(n int) (g grant, starved bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fatal != nil {
		return grant{}, false, s.fatal
	}
	if s.stopped {
		return grant{}, false, fmt.Errorf("membroker: receiving: %w", s.stopCause())
	}
	if s.lapsed = time.Since(s.contact) >= s.b.cfg.Lease; s.lapsed { // as after SIGSTOP: first hear what is still ours
		return grant{}, true, nil
	}
	free := s.budget.Messages - s.outN
	if s.starved = free <= 0; s.starved {
		return grant{}, true, nil
	}
	for range s.holdings {
		s.turn = (s.turn + 1) % len(s.holdings)
		h := s.holdings[s.turn]
		if len(h.spans) == 0 || !h.ready(time.Now) || h.behindStrays() {
			continue
		}
		if sp, gen := h.take(min(n, free)); sp.n > 0 {
			if s.mutant.is(ackBeforeSettle) {
				s.settleEarly(h, sp)
			}
			return grant{sp: sp, gen: gen, cs: h.claim, n: int(sp.n)}, false, nil
		}
	}
	return grant{}, false, nil
}

func (s *Source) stopCause() error {
	if s.killed {
		return errKilled
	}
	return broker.ErrClosed
}

// ask gets messages from the broker into the prefetch. due is when to ask again although nobody says that there is something.
func (s *Source) ask() (got bool, due time.Time, err error) {
	err = s.pass()
	if err == nil {
		err = s.fetch(&got, &due)
	}
	s.note(err)
	var r *refusal
	switch {
	case errors.As(err, &r):
		s.mu.Lock()
		s.fatal = fmt.Errorf("membroker: receiving: %w", r.err)
		s.mu.Unlock()
		return false, due, s.fatal
	case err != nil:
		return false, time.Now().Add(retryEvery), nil
	}
	return got, due, nil
}

// fetch asks for each holding that has nothing ready.
func (s *Source) fetch(got *bool, due *time.Time) error {
	now := time.Now()
	lost := s.answer()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.b.faults.down {
		return errDown
	}
	if err := s.b.faults.fail(OpReceive); err != nil {
		return &refusal{err}
	}
	if s.stopped {
		return nil
	}
	s.m.waiting = true
	for i := range s.holdings {
		h := s.holdings[(s.turn+1+i)%len(s.holdings)] // who is next to hand out asks first, or a small budget would starve the others
		if !h.heldUntil.IsZero() && now.Before(h.heldUntil) {
			*due = earlier(*due, h.heldUntil)
		}
		if len(h.spans) > 0 || !h.ready(func() time.Time { return now }) || h.epoch != h.cur.log.epoch {
			continue
		}
		bytes := s.budget.Bytes - s.outBytes - s.held
		if bytes <= 0 && !s.mutant.is(bytesUnbounded) {
			s.starved = bytes < 0 || !s.mutant.is(usedUpForgotten)
			break
		}
		var at time.Time
		if s.b.stream != nil {
			at = h.lease(now, bytes, lost != nil)
		} else if lost == nil {
			h.read(bytes)
		}
		*due = earlier(*due, at)
		*got = *got || len(h.spans) > 0
	}
	if !*got {
		s.learnLag(now)
	}
	return lost
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// lease takes messages of the stream. lost: the answer does not get here, so they come again after their lease.
func (h *holding) lease(now time.Time, maxBytes int64, lost bool) (due time.Time) {
	s := h.s
	limit := min(s.cfg.Prefetch, s.budget.Messages-s.outN-s.heldN)
	if limit <= 0 {
		s.starved = true
		return due
	}
	spans, g, due := s.m.fetch(limit, maxBytes, now)
	if lost {
		return due
	}
	if g != nil {
		s.sayGap(h.claim.claim, g, nil)
	}
	h.spans = spans
	for i := range spans {
		h.count(&spans[i])
	}
	return due
}

// read looks up messages of the partition.
func (h *holding) read(maxBytes int64) {
	s, l := h.s, h.cur.log
	s.m.g.pulls++
	if h.pos < l.first {
		h.jump(l.first)
	}
	room := h.floor + int64(s.cfg.Window) - h.pos
	if room <= 0 {
		if !h.stalled && h.pos < l.end {
			h.stalled = true
			s.say(broker.Event{Kind: broker.Stalled, Claim: h.claim.claim, From: h.floor})
		}
		return
	}
	sp, _ := l.read(h.pos, int(min(int64(s.cfg.Prefetch), room)), maxBytes)
	if sp.n == 0 {
		return
	}
	h.pos = sp.from + sp.n
	h.spans = append(h.spans[:0], sp)
	h.count(&h.spans[0])
}

func (h *holding) count(sp *span) {
	h.held += sp.bytes
	h.s.held += sp.bytes
	h.heldN += int(sp.n)
	h.s.heldN += int(sp.n)
}

// jump passes messages that the log does not have any more, and says how many nobody handled.
func (h *holding) jump(first int64) {
	s, from, missing := h.s, h.pos, int64(0)
	if h.w.lo == h.w.hi {
		missing = first - h.pos
		h.w.lo, h.w.hi, h.floor = first, first, first
	} else {
		h.w.extend(h.floor, first)
		for o := h.pos; o < first; o++ {
			if sl := h.w.get(o); sl != nil && (sl.state == unseen || sl.state == back) {
				if sl.state == unseen || !s.mutant.is(backGoneSilently) {
					missing++
				}
				sl.state = done
			}
		}
	}
	h.pos = first
	h.advance()
	s.dirtied(h)
	if missing > 0 {
		s.sayGap(h.claim.claim, &gap{from: from, n: missing}, nil)
	}
}

func (s *Source) sayGap(c *broker.Claim, g *gap, err error) {
	if s.mutant.is(skipGapSilently) {
		return
	}
	from := g.from
	if s.mutant.is(gapFromZero) {
		from = 0
	}
	s.say(broker.Event{Kind: broker.Gap, Claim: c, From: from, N: g.n, Err: err})
}

// await sleeps until something may have changed.
func (s *Source) await(due time.Time) {
	if due.IsZero() {
		<-s.wake
		return
	}
	t := time.NewTimer(time.Until(due))
	defer t.Stop()
	select {
	case <-s.wake:
	case <-t.C:
	}
}

// learnLag takes the figures of this exchange; it needs both locks.
func (s *Source) learnLag(now time.Time) {
	if f := s.b.faults.lag; f != nil {
		s.lag, s.lags = *f, nil
		return
	}
	lag := s.m.lag(now)
	s.lags = nil
	if s.b.stream == nil {
		waiting := map[*cursor]int64{}
		for _, h := range s.holdings {
			n := max(0, h.cur.log.end-max(h.high, h.cur.log.first))
			lag.Waiting += n
			waiting[h.cur] = n
		}
		for _, c := range s.m.owned() {
			_, unsettled := c.behind(nil)
			s.lags = append(s.lags, broker.PartitionLag{Topic: c.log.topic, Partition: c.log.partition, Lag: broker.Lag{Waiting: waiting[c], Unsettled: unsettled, At: now}})
		}
	}
	if s.mutant.is(lagGroupWrong) {
		lag.Group = !lag.Group
	}
	s.lag = lag
}
