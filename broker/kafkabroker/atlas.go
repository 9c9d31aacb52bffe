package kafkabroker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// An atlas is how the subscribed topics are laid out, by the last look at them. Safe for concurrent use.
type atlas struct {
	names   []string // subscribed to; or those that match the pattern
	pattern string
	matches func(topic string) bool

	mu        sync.Mutex
	begun     int // looks that have begun
	look      int // the one that topics come from
	topics    map[string]topic
	sizes     map[string]int       // how many partitions topics have, by the last looks that could tell
	missing   map[string]int       // looks in a row that did not find a topic, and were no sooner than apart after each other
	missedAt  map[string]time.Time // the last of them
	apart     time.Duration
	seen      *kit.Recent[string, sighting]
	unmatched bool // it was told that the pattern matches none
}

func newAtlas(cfg *Config) *atlas {
	return &atlas{
		names: cfg.Topics, pattern: cfg.Pattern, matches: cfg.matcher(), missing: make(map[string]int),
		missedAt: make(map[string]time.Time), apart: min(unsure, cfg.Poll), sizes: make(map[string]int),
		seen: kit.NewRecent[string, sighting](mostSeen),
	}
}

// A sighting is what was seen of topics of one name: the id of the last one, how many partitions that had at the first look,
// and whether there were others before. It outlives the topic: the group forgets what was committed of one that is deleted, and
// what is made again under its name is to be read from its beginning, whatever Config.Start says. So is a partition that was
// added.
type sighting struct {
	id     topicID
	before []topicID // the last ones that it had before, for a broker that is behind the others tells of one of them
	parts  int
	again  bool
}

// mostBefore bounds sighting.before.
const mostBefore = 8

// mostSeen is how many names are remembered, for topics may come and go.
const mostSeen = 10_000

// see takes note of a topic that is there. made: it was missing until now.
func (a *atlas) see(name string, t topic, made bool) {
	was, known := a.seen.Get(name)
	if known && (t.id == (topicID{}) || was.id == t.id) {
		return
	}
	is := sighting{id: t.id, before: was.before, parts: len(t.leaders), again: was.id != (topicID{})}
	if is.again {
		is.before = append(is.before[max(0, len(is.before)-mostBefore+1):], was.id)
	}
	if made || is.again { // all of it is new
		is.parts = 0
	}
	a.seen.Put(name, is)
}

// A survey is what a look brought.
type survey struct {
	topics map[string]topic
	counts map[string]int32 // how many partitions topics have; 0 of one that was deleted
	news   []error          // to warn of
	err    error            // what no wait would cure
}

// begin counts a look that begins now, and returns its number.
func (a *atlas) begin() (look int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun++
	return a.begun
}

// looks is how many looks have begun. One with a higher number begins later than now.
func (a *atlas) looks() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begun
}

// learn takes what the brokers tell of topics in a look, and puts together whom it concerns. waits: what is missing is waited
// for, and warned of once.
func (a *atlas) learn(look int, ts map[string]topic, waits bool) survey {
	v := survey{topics: ts, counts: make(map[string]int32)}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(ts, func(name string, _ topic) bool { return !a.matches(name) })
	a.correct(ts)
	missed := a.carry(ts)
	for name, t := range ts {
		if missed[name] {
			v.counts[name] = int32(len(t.leaders))
			continue
		}
		if codeOf(t.err) == kafka.TopicAuthorizationFailed && a.pattern == "" {
			v.err = fmt.Errorf("topic %s: %w", name, t.err)
		}
		made := a.missing[name] >= missingLooks
		a.miss(name, t.err)
		if t.err == nil || a.gone(name) {
			v.counts[name] = int32(len(t.leaders))
		}
		if t.err == nil {
			a.see(name, t, made)
			continue
		}
		if was, known := a.topics[name]; codeOf(t.err) == kafka.UnknownTopicOrPartition && (!known || was.err == nil) && waits {
			v.news = append(v.news, awaited(name))
		}
	}
	if a.pattern != "" && len(ts) == 0 && !a.unmatched && waits {
		a.unmatched = true
		v.news = append(v.news, fmt.Errorf("no topic matches %q: waiting for one", a.pattern))
	}
	a.topics, a.look = ts, look
	a.measure()
	return v
}

// correct puts what was known of a topic in the place of an older one. No id comes back: who tells of one that was followed by
// another has stood still meanwhile, or is cut off from the others. Were that one taken for a topic that was made anew, all of
// the newer one would be handled again. Nor does a topic ever have fewer partitions than it had.
func (a *atlas) correct(ts map[string]topic) {
	for name, t := range ts {
		seen, known := a.seen.Get(name)
		is, there := a.topics[name]
		shrunk := there && is.err == nil && t.err == nil && t.id != (topicID{}) && t.id == is.id && len(t.leaders) < len(is.leaders)
		if !shrunk && (!known || !slices.Contains(seen.before, t.id)) {
			continue
		}
		if there {
			ts[name] = is
		} else {
			delete(ts, name)
		}
	}
}

// carry keeps those topics of a pattern that a look has missed for the first time, as they were, and says which. It is as with
// topics that are named: else one answer of a broker that has just started would take them from the group, and for deleted.
func (a *atlas) carry(ts map[string]topic) (missed map[string]bool) {
	if a.pattern == "" {
		return nil
	}
	missed = make(map[string]bool)
	for name, was := range a.topics {
		if _, there := ts[name]; there {
			continue
		}
		if a.missed(name); a.missing[name] >= missingLooks {
			a.found(name) // what a pattern matches and nobody knows is gone
			continue
		}
		ts[name], missed[name] = was, true
	}
	return missed
}

// measure keeps how many partitions topics have. A topic that no broker can tell of for a moment has as many as before, and so
// has one that a broker which has just started does not know yet: else all would have too large a share of the others.
func (a *atlas) measure() {
	for name, t := range a.topics {
		if t.err == nil {
			a.sizes[name] = len(t.leaders)
		}
	}
	maps.DeleteFunc(a.sizes, func(name string, _ int) bool { return a.gone(name) })
}

// partitions is how many partitions all topics have together.
func (a *atlas) partitions() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.sizes {
		n += s
	}
	return n
}

// missingLooks is from how many looks on, one after the other, a topic that no broker knows was deleted. A broker that has just
// started may not know it yet.
const missingLooks = 2

// miss counts looks that did not find a topic.
func (a *atlas) miss(topic string, err error) {
	if codeOf(err) == kafka.UnknownTopicOrPartition {
		a.missed(topic)
	} else {
		a.found(topic)
	}
}

// missed takes note of a look that did not find a topic. Where leaders are missing, too, looks follow each other at once, and all
// of them may go to the broker that has just started.
func (a *atlas) missed(topic string) {
	if now := time.Now(); a.missing[topic] == 0 || now.Sub(a.missedAt[topic]) >= a.apart {
		a.missing[topic]++
		a.missedAt[topic] = now
	}
}

func (a *atlas) found(topic string) {
	delete(a.missing, topic)
	delete(a.missedAt, topic)
}

func (a *atlas) gone(topic string) bool {
	_, known := a.topics[topic]
	return a.missing[topic] >= missingLooks || !known && a.pattern != ""
}

// lacks says whether the log of a partition is gone: its topic was deleted, or is another one by now, which may have fewer
// partitions.
func (a *atlas) lacks(p partitionID, id topicID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, known := a.topics[p.topic]
	switch {
	case a.gone(p.topic):
		return true
	case !known || t.err != nil:
		return false
	case id != (topicID{}) && t.id != (topicID{}):
		return t.id != id
	}
	return int(p.no) >= len(t.leaders)
}

// absent says what there is not of what is to be consumed, by the last look.
func (a *atlas) absent() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pattern != "" && len(a.topics) == 0 {
		return fmt.Errorf("%w: none matches %q, and Missing is stop", broker.ErrNoTopic, a.pattern)
	}
	for _, name := range a.names {
		if a.missing[name] > 0 {
			return fmt.Errorf("%w: %s, and Missing is stop", broker.ErrNoTopic, name)
		}
	}
	return nil
}

// nothing says that the last look found none of the topics that are named. What a pattern matches may be nothing for long.
func (a *atlas) nothing() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pattern != "" || slices.ContainsFunc(a.names, func(name string) bool { return a.missing[name] == 0 }) {
		return nil
	}
	if len(a.names) == 1 {
		return awaited(a.names[0])
	}
	return fmt.Errorf("none of the topics %s exists: waiting for one", strings.Join(a.names, ", "))
}

// awaited says that a topic is waited for.
func awaited(topic string) error { return fmt.Errorf("topic %s does not exist: waiting for it", topic) }

// whole says whether the last look found all that is to be consumed, with a leader for each partition.
func (a *atlas) whole() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.topics) == 0 {
		return false
	}
	for _, name := range a.names {
		if _, known := a.topics[name]; !known {
			return false
		}
	}
	for _, t := range a.topics {
		if t.err != nil || len(t.leaders) == 0 || slices.ContainsFunc(t.leaders, func(no int32) bool { return no < 0 }) {
			return false
		}
	}
	return true
}

// A place is who leads a partition, and of which topic it is.
type place struct {
	leader int32 // negative: nobody, or nobody knows
	id     topicID
	again  bool // there was another topic of its name before
	count  int  // how many partitions its topic has
	first  int  // see progress: as far as this process knows
	look   int  // that told it
}

// of is the place of a partition by the last look.
func (a *atlas) of(p partitionID) place {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, known := a.topics[p.topic]
	if !known || t.err != nil || int(p.no) >= len(t.leaders) {
		return place{leader: -1, look: a.look}
	}
	is := place{leader: t.leaders[p.no], id: t.id, count: len(t.leaders), look: a.look}
	if was, seen := a.seen.Get(p.topic); seen {
		is.again, is.first = was.again, was.parts+1
	}
	return is
}

// subscribed are the topics to tell the group of.
func (a *atlas) subscribed() []string {
	if a.pattern == "" {
		return a.names
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for name := range a.topics {
		if a.matches(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
