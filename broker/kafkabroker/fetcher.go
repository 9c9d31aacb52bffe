package kafkabroker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

const (
	// flightsPerBroker is how many fetches may be under way to one broker: one that waits for partitions without messages, and one
	// more, so that a partition which was read to its end need not wait for the first.
	flightsPerBroker = 2
	// partWait is how long a fetch waits that does not have all of its broker's partitions, so that they come together again soon.
	partWait = 50 * time.Millisecond
)

// A flight is a fetch under way, with the version that each partition had.
type flight struct {
	req      fetchRequest
	sent     time.Time
	parts    []*part
	versions []int
}

// schedule sends fetches for partitions that have nothing ready; it needs s.mu.
func (s *Source) schedule() {
	if s.stopped || s.closing || s.fatal != nil {
		return
	}
	now := time.Now()
	flights := make(map[int32]*flight)
	missing := make(map[int32]bool)
	for _, p := range s.turns {
		node := p.leader
		if p.replica >= 0 {
			node = p.replica
		}
		if node < 0 || p.shut || s.pauses.Has(p.topic) || now.Before(p.heldUntil) || now.Before(p.retryAt) {
			continue
		}
		if p.flying || p.cur != nil || p.busy || s.flights[node] >= flightsPerBroker || !p.ready(now) {
			missing[node] = true
			continue
		}
		f := flights[node]
		if f == nil {
			f = &flight{req: fetchRequest{node: node, maxWait: s.cfg.MaxWait, committed: !s.cfg.Uncommitted, rack: s.cfg.Rack}}
			flights[node] = f
		}
		f.parts = append(f.parts, p)
	}
	for node, f := range flights {
		_, free, ok := s.gate.FetchRoom()
		if !ok {
			return
		}
		if missing[node] {
			f.req.maxWait = min(partWait, s.cfg.MaxWait)
		}
		s.send(f, free)
	}
}

// send reserves budget and starts the fetch; it needs s.mu.
func (s *Source) send(f *flight, free int64) {
	f.req.bytes = int32(min(int64(s.cfg.FetchBytes), free))
	for _, p := range f.parts {
		p.flying = true
		f.versions = append(f.versions, p.version)
		f.req.wishes = append(f.req.wishes, wish{partitionID: p.partitionID, id: p.id, offset: p.pos, bytes: min(int32(s.cfg.PartitionBytes), f.req.bytes)})
	}
	s.gate.Hold(0, int64(f.req.bytes))
	s.flights[f.req.node]++
	f.sent = time.Now()
	s.work.Go(func() {
		began := time.Now()
		got, err := s.c.fetch(s.life, &f.req, s.cfg.MaxBatchBytes)
		s.note(began, err)
		s.arrived(f, got, err)
	})
}

// arrived takes what a fetch brought, where it is still wanted.
func (s *Source) arrived(f *flight, got []fetched, err error) {
	answers := make(map[partitionID]*fetched, len(got))
	for i := range got {
		answers[got[i].partitionID] = &got[i]
	}
	now := time.Now()
	hasty := now.Sub(f.sent) < f.req.maxWait/2 && !slices.ContainsFunc(got, func(a fetched) bool { return len(a.records) > 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate.Hold(0, -int64(f.req.bytes))
	s.flights[f.req.node]--
	for i, p := range f.parts {
		p.flying = false
		a := answers[p.partitionID]
		switch {
		case a == nil:
			p.retryAt, p.replica = now.Add(retryWait), -1
			signal(s.find)
		case p.shut && p.tr.fenced || p.version != f.versions[i]:
		default:
			s.accept(p, a, now)
			if hasty {
				p.fruitless(now)
			}
		}
	}
	if err == nil {
		s.lagAt = now
	}
	signal(s.wake)
	signal(s.kick)
}

// accept takes one partition's part of an answer; it needs s.mu.
func (s *Source) accept(p *part, a *fetched, now time.Time) {
	switch {
	case codeOf(a.err) == kafka.OffsetOutOfRange:
		p.retryAt, p.replica = now.Add(retryWait), -1
		s.work.Go(func() { s.outOfRange(p, p.pos) })
		return
	case moved(a.err):
		p.retryAt, p.replica = now.Add(retryWait), -1
		signal(s.find)
		return
	case a.err != nil:
		p.retryAt = now.Add(20 * retryWait)
		err := fmt.Errorf("fetching %s/%d at offset %d: %w", p.topic, p.no, p.pos, a.err)
		s.say(broker.Event{Kind: broker.Warning, Claim: p.claim, Err: err})
		return
	}
	p.end, p.endAt = a.end(!s.cfg.Uncommitted), now
	if a.preferred >= 0 && len(a.records) == 0 {
		p.replica = a.preferred
		return
	}
	if len(a.records) == 0 {
		return
	}
	p.cur = newDecoder(a.records, p.pos, max(a.high, p.end), !s.cfg.Uncommitted, a.aborted, s.cfg.MaxBatchBytes)
	p.curBytes = int64(len(a.records))
	s.gate.Hold(0, p.curBytes)
}

var (
	errTrimmed = errors.New("the log begins above the position: messages are gone that nobody handled")
	errBeyond  = errors.New("the position is beyond the log's end: the log was cut off or made again")
)

// outOfRange finds out on which side of the log the position is.
func (s *Source) outOfRange(p *part, pos int64) {
	s.mu.Lock()
	leader := p.leader
	s.mu.Unlock()
	first, err := s.c.listOffset(s.life, leader, p.partitionID, timeStart, s.isolation())
	end := int64(0)
	if err == nil {
		end, err = s.c.listOffset(s.life, leader, p.partitionID, timeEnd, 0)
	}
	if err != nil {
		s.note(time.Time{}, err)
		signal(s.find)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer signal(s.kick)
	if p.tr.fenced || p.shut || p.pos != pos {
		return
	}
	if pos >= first && pos <= end {
		return // a replica, or a leader that was new, did not have it yet
	}
	s.leaveRange(p, pos, first, end)
}

// leaveRange does what the policy says of a position that the log does not have; it needs s.mu.
func (s *Source) leaveRange(p *part, pos, first, end int64) {
	why := fmt.Errorf("%s/%d: %w: position %d, end %d", p.topic, p.no, errBeyond, pos, end)
	if pos < first {
		why = fmt.Errorf("%s/%d: %w: from %d to %d", p.topic, p.no, errTrimmed, p.scan, first)
	}
	switch {
	case s.cfg.OutOfRange == "stop":
		s.fatal = fmt.Errorf("ended by the policy stop: %w", why)
		signal(s.wake)
	case pos < first:
		from := p.scan
		if gone := p.jump(first); gone > 0 {
			s.say(broker.Event{Kind: broker.Gap, Claim: p.claim, From: from, N: gone, Err: why})
		}
	default:
		s.restart(p, why)
	}
}
