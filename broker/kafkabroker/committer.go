package kafkabroker

import (
	"context"
	"fmt"
	"slices"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// A due is a snapshot on its way to the broker.
type due struct {
	p *part
	s snapshot
	c *commitment
	// last: it was taken after the claim had ended. That it has ended by the time of the answer says nothing of the snapshot.
	last bool
}

// commitLoop sends commits, one request at a time: only one that got no answer can arrive behind a newer, see doubt. It ends when
// no claim is left and all is committed, or life has ended.
func (s *Source) commitLoop() {
	defer close(s.committed)
	timer := time.NewTimer(s.cfg.CommitInterval)
	defer timer.Stop()
	last, size := time.Now(), 0
	for {
		select {
		case <-s.life.Done():
			return
		case <-s.flush:
		case <-timer.C:
		}
		if s.k.doubtOver(time.Now()) {
			s.uncommit()
		}
		if wait := time.Until(last.Add(s.cfg.commitWait(s.backlog(), size))); wait > 0 {
			timer.Reset(wait)
			continue
		}
		again := true
		for again && s.life.Err() == nil {
			if size, again = s.commit(); again {
				pause(s.life, retryWait)
			}
		}
		if s.allCommitted() {
			return
		}
		last = time.Now()
		timer.Reset(s.cfg.CommitInterval)
	}
}

// uncommit lets all be committed again.
func (s *Source) uncommit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		p.tr.uncommit()
	}
}

const (
	// commitGap is the least time between two commits, but for those that somebody waits for.
	commitGap = 20 * time.Millisecond
	// commitBytes a second is how much metadata is written for a long time. The broker keeps each commit until its log is compacted.
	commitBytes = 256 << 10
)

// A backlog is what the next commit would have to tell.
type backlog struct {
	finished int64 // messages handled since the last one
	waited   bool  // somebody waits for it: a claim has begun or ended
}

// commitWait is how long to wait after the last commit, which had so many bytes of metadata. A few finished messages wait for
// CommitInterval; from CommitMessages on they go out at once: what a crash does again is bounded by their number where there are
// many, and by time where there are few.
func (c *Config) commitWait(b backlog, size int) time.Duration {
	switch {
	case b.waited:
		return 0
	case b.finished >= int64(c.CommitMessages):
		return min(c.CommitInterval, max(commitGap, time.Duration(size)*time.Second/commitBytes))
	}
	return c.CommitInterval
}

func (s *Source) backlog() backlog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return backlog{finished: s.finished, waited: s.hurry || s.leaving || len(s.ending) > 0}
}

// allCommitted says whether Close is waiting for us and there is nothing left.
func (s *Source) allCommitted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving && len(s.ending) == 0
}

// commit sends what is new, with so many bytes of metadata. again: something of it should be tried again soon.
func (s *Source) commit() (size int, again bool) {
	me := s.m.seat(partitionID{}) // before the snapshots: what is lost after this cannot be committed under a later name
	ds := s.collect()
	if len(ds) == 0 {
		return 0, false
	}
	cs := make([]*commitment, len(ds))
	for i, d := range ds {
		cs[i] = d.c
		size += len(d.c.metadata)
	}
	ctx, cancel := context.WithTimeout(s.life, s.c.timeout)
	defer cancel()
	err := s.k.commit(ctx, me, cs)
	if err != nil {
		s.note(time.Time{}, err)
		return size, true
	}
	var released []partitionID
	s.mu.Lock()
	for _, d := range ds {
		retry, free := s.answered(d)
		again = again || retry
		if free {
			released = append(released, d.p.partitionID)
		}
	}
	s.mu.Unlock()
	if len(released) > 0 {
		s.m.release(released)
	}
	signal(s.kick)
	return size, again
}

// collect takes snapshots: of open claims where something is new, and the last ones.
func (s *Source) collect() (ds []due) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished, s.hurry = 0, false
	add := func(p *part, clean bool) {
		snap := p.tr.snapshot(clean)
		d := due{p: p, s: snap, last: clean, c: &commitment{partitionID: p.partitionID, offset: snap.base}}
		if !p.bare {
			d.c.metadata = snap.encode(metadataLimit)
		}
		p.sent(d.c.position())
		ds = append(ds, d)
	}
	for _, p := range s.parts {
		if p.tr.dirty() {
			add(p, false)
		}
	}
	for _, p := range s.ending {
		if p.over {
			add(p, true)
		}
	}
	return ds
}

// answered takes note of the broker's answer for one partition; it needs s.mu. free: it may be released.
func (s *Source) answered(d due) (retry, free bool) {
	switch code := codeOf(d.c.err); {
	case d.c.err == nil:
		d.p.tr.commit(d.s)
		d.p.taken(d.c.position())
		d.p.written(d.s.suspect)
		return false, d.last && s.ended(d.p)
	case code == kafka.OffsetMetadataTooLarge && !d.p.bare:
		d.p.bare = true
		d.p.unsuspect() // no commit can say what runs alone
		s.say(broker.Event{Kind: broker.Warning, Claim: d.p.claim, Err: fmt.Errorf("%s/%d: the broker takes no metadata of %d bytes (offset.metadata.max.bytes): finished messages above the committed offset come again after a restart", d.p.topic, d.p.no, len(d.c.metadata))})
		return true, false
	case code == kafka.UnknownTopicOrPartition && s.isGone(d.p.topic):
		if d.last { // what was acked is gone with its log
			d.p.tr.confirmed = d.p.tr.acked
		}
		return false, d.last && s.ended(d.p)
	case fenced(code), code == kafka.RebalanceInProgress:
		// The group goes to its next generation, and we may be part of that: then it is sent again under it. Otherwise the membership
		// hears the same with its next heartbeat and says that all is lost.
		return true, false
	default:
		s.note(time.Time{}, d.c.err)
		return true, false
	}
}

// ended takes a part out whose last commit was made. It was not in any more if the partition was lost meanwhile: whoever has it
// now has a claim of its own, and perhaps that is we.
func (s *Source) ended(p *part) (was bool) {
	n := len(s.ending)
	s.ending = slices.DeleteFunc(s.ending, func(x *part) bool { return x == p })
	return len(s.ending) < n
}

// fenced says that the group has others in our place. The membership hears it with its next heartbeat.
func fenced(code kafka.Error) bool {
	return code == kafka.IllegalGeneration || code == kafka.UnknownMemberId || code == kafka.FencedInstanceID
}
