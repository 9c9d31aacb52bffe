package kafkabroker

import (
	"context"
	"fmt"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// poll looks at topics every now and then, and when a fetch was told to look elsewhere.
func (s *Source) poll() {
	tick := time.NewTicker(s.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
		case <-s.find:
			pause(s.life, retryWait) // a broker that says so again and again is not asked more often
		}
		if err := s.look(s.life); err != nil {
			s.note(time.Time{}, err)
		}
		s.measure()
	}
}

// oldEnd is the age from which a partition's end is asked for: nothing is fetched of it, because the budget is used up, or it is
// paused.
const oldEnd = 2 * time.Second

// measure learns the ends of partitions that no fetch has told of lately. Without it the lag would stand still just when it
// grows.
func (s *Source) measure() {
	now := time.Now()
	var old []*part
	s.mu.Lock()
	for _, p := range s.parts {
		if now.Sub(p.endAt) > oldEnd && p.leader >= 0 {
			old = append(old, p)
		}
	}
	s.mu.Unlock()
	for _, p := range old {
		s.mu.Lock()
		leader := p.leader
		s.mu.Unlock()
		end, err := s.c.listOffset(s.life, leader, p.partitionID, timeEnd, s.isolation())
		if err != nil {
			s.note(time.Time{}, err)
			return
		}
		s.mu.Lock()
		p.end, p.endAt, s.lagAt = end, time.Now(), time.Now()
		s.mu.Unlock()
	}
}

// look learns how topics are laid out, and tells whoever it concerns.
func (s *Source) look(ctx context.Context) error {
	ts, err := s.c.topics(ctx, s.cfg.Topics)
	if err != nil {
		return err
	}
	counts := make(map[string]int32)
	s.mu.Lock()
	refuses := s.phase == opening && s.cfg.Missing == "stop" // to open without it
	for name, t := range ts {
		if !s.matches(name) {
			delete(ts, name)
			continue
		}
		if codeOf(t.err) == kafka.TopicAuthorizationFailed && s.cfg.Pattern == "" {
			err = fmt.Errorf("topic %s: %w", name, t.err)
		}
		s.miss(name, t.err)
		if t.err == nil || s.isGone(name) {
			counts[name] = int32(len(t.leaders))
		}
		if t.err == nil {
			continue
		}
		if was, known := s.layout[name]; codeOf(t.err) == kafka.UnknownTopicOrPartition && (!known || was.err == nil) && !refuses {
			s.say(broker.Event{Kind: broker.Warning, Err: fmt.Errorf("topic %s does not exist: waiting for it", name)})
		}
	}
	if s.cfg.Pattern != "" && len(ts) == 0 && !s.unmatched && !refuses {
		s.unmatched = true
		s.say(broker.Event{Kind: broker.Warning, Err: fmt.Errorf("no topic matches %q: waiting for one", s.cfg.Pattern)})
	}
	s.layout = ts
	for _, p := range s.parts {
		s.follow(p, ts[p.topic])
	}
	s.mu.Unlock()
	s.m.look(counts)
	signal(s.kick)
	return err
}

// missingLooks is from how many looks on, one after the other, a topic that no broker knows was deleted. A broker that has just
// started may not know it yet.
const missingLooks = 2

// miss counts looks that did not find a topic; it needs s.mu.
func (s *Source) miss(topic string, err error) {
	if codeOf(err) == kafka.UnknownTopicOrPartition {
		s.missing[topic]++
	} else {
		delete(s.missing, topic)
	}
}

// isGone says whether a topic was deleted; it needs s.mu.
func (s *Source) isGone(topic string) bool {
	_, known := s.layout[topic]
	return s.missing[topic] >= missingLooks || !known && s.cfg.Pattern != ""
}

// follow takes the partition's leader, or begins it anew where the topic is another one by now; it needs s.mu.
func (s *Source) follow(p *part, t topic) {
	if t.err != nil || int(p.no) >= len(t.leaders) {
		return
	}
	if p.leader != t.leaders[p.no] {
		p.leader, p.replica = t.leaders[p.no], -1
		p.retryAt = time.Time{}
	}
	if t.id != p.id && t.id != (topicID{}) && p.id != (topicID{}) && !p.shut {
		s.restart(p, fmt.Errorf("%s/%d: %w", p.topic, p.no, errRecreated))
	}
}
