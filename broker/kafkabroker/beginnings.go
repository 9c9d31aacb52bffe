package kafkabroker

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker/kit"
)

// beginnings are what the group has nothing committed of: a slip in its name, too, looks like a new group. It is told of each
// topic once.
type beginnings struct {
	mu   sync.Mutex
	told *kit.Recent[string, topicID]
}

func newBeginnings() *beginnings {
	return &beginnings{told: kit.NewRecent[string, topicID](mostLearned)}
}

// fresh says whether it is of a partition that the group has nothing of, and that was there before the group.
func (b *start) fresh() bool { return b.at.offset < 0 && b.reset == nil && !b.added() }

// lines are what is to be told of fresh starts that begin together: a line for each topic that was not told of before.
func (x *beginnings) lines(cfg *Config, bs []*start) (lines []string) {
	if len(bs) == 0 {
		return nil
	}
	by := make(map[string][]*start)
	for _, b := range bs {
		by[b.topic] = append(by[b.topic], b)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for topic, bs := range by {
		if id, told := x.told.Get(topic); told && id == bs[0].id {
			continue
		}
		x.told.Put(topic, bs[0].id)
		lines = append(lines, fmt.Sprintf("group %q has no committed offset in topic %s (%d of its partitions)",
			cfg.Group, topic, len(bs)))
	}
	slices.Sort(lines)
	return lines
}

// begins says where that is.
func (s Start) begins() string {
	switch s.At {
	case "latest":
		return "begins at the latest message: what is there already is not handled"
	case "time":
		return "begins at " + s.Time.UTC().Format(time.RFC3339)
	}
	return "begins at the earliest message: all that is there is handled"
}

// refusal is why a source with Start none ends.
func refusal(lines []string) error {
	return fmt.Errorf("%s, and start is none: is that the group's name? To begin all the same, set its offsets, or another start",
		strings.Join(lines, "; "))
}
