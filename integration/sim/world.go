package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A Kind is one kind of broker, of which there is a new World for each run.
type Kind struct {
	// Name stands in schedules.
	Name string
	// Cannot has the faults that cannot be done here, each with the reason.
	Cannot map[What]string
	// Shared: several processes share the messages of a partition, so that an order holds within each process only.
	Shared bool
	// Pins: in an order one process at a time gets the messages, so that nothing is begun ahead of what it follows. A run may still
	// be under way in another process: a server that is started again forgets a part of each lease.
	Pins bool
	// Confuses: a settle names a message by its place alone. One that was sent before its process has heard that the topic was
	// made anew is taken for a settle of what stands there now.
	Confuses bool
	// Assigns: the broker can assign partitions, where Settings.Assigned says so.
	Assigns bool
	// NoSpill: there are no retry topics, since the broker keeps delays itself.
	NoSpill bool
	// Bridges: processes can publish what their handlers emit before they ack (Settings.Bridge).
	Bridges bool
	// Shares: a source knows which part of the work is its process's.
	Shares bool
	// Suspects: a source finds out which message kills its processes, where Settings.CrashLimit says so.
	Suspects bool
	// EmitsNot is why handlers emit nothing here; "": they can.
	EmitsNot string
	// Late: a process hears at its next exchange with the broker of what was done there, and so within a lease. A fault that is
	// over at once is trouble for so long.
	Late bool
	// Asked is how long what was asked for with a larger budget may still come.
	Asked time.Duration
	// Heavy is how much longer a run takes here than on the lightest kind. By default so many fewer are run.
	Heavy int
	// Prepare is called before a run, outside of its bubble: for what outlives it. nil: there is nothing of the kind.
	Prepare func()
	// New makes a world, inside the bubble of its run. t is for t.TempDir and t.Fatal.
	New func(t testing.TB, s Schedule) World
}

// A World is a broker in a bubble. Its methods are called by one goroutine, the run's, except those of what it makes.
type World interface {
	// Join makes the connections of another process. It starts nothing that outlives its Close.
	Join(name string) Process
	// Produce stores a message of some other program; it is there when this returns. offset is where; -1: that is not known.
	Produce(topic string, partition int, key, value []byte) (offset int64, err error)
	// Do does a fault of those that Kind.Cannot does not name. undo ends one that lasts; it is nil where there is nothing to end,
	// and otherwise called once. p is the process that it is done to, or nil. What is not possible just now (a partition without
	// an owner) is not an error: nothing is done.
	Do(f Fault, p Process) (undo func(), err error)
	// Messages returns what a topic has, by partition and offset: what no open transaction may take back, and none has.
	Messages(topic string) ([]broker.Message, error)
	// Unsettled is what would be delivered if all processes were gone now, of all topics that a group reads: how many, and where.
	// It asks the broker, never an adapter.
	Unsettled() (n int64, where string, err error)
	// Gone are the messages that Trim and Recreate have taken from the inputs, by number, in the order in which they went.
	Gone() []int
	// Floors is how the lowest unsettled offset went, by topic and partition; nil where that is not known. It must not go back,
	// unless settles were forgotten.
	Floors() map[string][]int64
	// Close ends the broker. All goroutines of the world end a while after it.
	Close()
}

// newest is how many messages a Trim with that number leaves.
func newest(n int) int { return n % 16 }

// A shelf is what the inputs of a broker have, as they were stored, and what of it is gone.
type shelf struct {
	have map[string][]broker.Message // by topic
	gone []int
}

// store adds a message to its topic.
func (s *shelf) store(m broker.Message) {
	if s.have == nil {
		s.have = map[string][]broker.Message{}
	}
	s.have[m.Topic] = append(s.have[m.Topic], m)
}

// above is the lowest offset of the newest n messages of a partition; 0: it does not have more than those.
func (s *shelf) above(topic string, partition int32, n int) int64 {
	var offsets []int64
	for _, m := range s.have[topic] {
		if m.Partition == partition {
			offsets = append(offsets, m.Offset)
		}
	}
	if len(offsets) <= n {
		return 0
	}
	return append(offsets, offsets[len(offsets)-1]+1)[len(offsets)-n]
}

// drop takes away what a partition has below an offset.
func (s *shelf) drop(topic string, partition int32, below int64) {
	s.have[topic] = slices.DeleteFunc(s.have[topic], func(m broker.Message) bool {
		if m.Partition != partition || m.Offset >= below {
			return false
		}
		s.gone = append(s.gone, numberOf(m.Value))
		return true
	})
}

// empty takes away all that a topic has.
func (s *shelf) empty(topic string) {
	for _, m := range s.have[topic] {
		s.gone = append(s.gone, numberOf(m.Value))
	}
	delete(s.have, topic)
}

// Gone implements World.
func (s *shelf) Gone() []int { return s.gone }

// A roster is a world whose broker knows which processes take part.
type roster interface {
	// Members are those that are free to go without a word to come back.
	Members() (names []string)
}

// A nackHearer is a world whose broker tells which messages were given back to it.
type nackHearer interface {
	Nacks() []nack
}

// A nack is a message that was given back, and when its broker heard of it.
type nack struct {
	topic  string
	offset int64
	at     time.Time
}

// A Process is what one process has of the broker.
type Process interface {
	// Source makes a subscription of this process, not opened.
	Source(s Subscription) (broker.Source, error)
	// Publisher makes one for dead letters and retry topics.
	Publisher() (broker.Publisher, error)
	// Close ends what is left of the connections. The sources are closed by then.
	Close()
}

// A Subscription is what a source reads.
type Subscription struct {
	// Group shares the work, and its progress; on JetStream the name of the durable.
	Group  string
	Topics []string
	// Ordered: the engine will keep an order.
	Ordered bool
}

// kinds are all kinds of worlds. Each adds itself in its file.
var kinds []Kind

// Kinds returns all kinds.
func Kinds() []Kind { return slices.Clone(kinds) }

// KindOf finds a kind by its name.
func KindOf(name string) (Kind, error) {
	var names []string
	for _, k := range kinds {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Kind{}, fmt.Errorf("there is no world %q, only %s", name, strings.Join(names, ", "))
}

// Can says why a fault cannot be done in such a world; nil: it can.
func (k Kind) Can(w What) error {
	if _, known := whats[w]; !known {
		return fmt.Errorf("there is no fault %q", w)
	}
	if why, no := k.Cannot[w]; no {
		return fmt.Errorf("world %s cannot do %q: %s", k.Name, w, why)
	}
	return nil
}

// validate says what of a kind is wrong, for its author.
func (k Kind) validate() error {
	var errs []error
	for w, why := range k.Cannot {
		if whats[w].engine || why == "" {
			errs = append(errs, fmt.Errorf("world %s: Cannot[%q] is %q: it is not the world's to do, or has no reason",
				k.Name, w, why))
		}
	}
	return errors.Join(errs...)
}

// The topics of a schedule.
const (
	letterTopic = "dead"
	mainGroup   = "main"
	retryGroup  = "retry"
	outputTopic = "out"
)

// retryTopics have delays of retryDelays.
var retryTopics = []string{"retry0", "retry1"}

// Inputs are the topics that are read.
func (s Schedule) Inputs() []string {
	names := make([]string, s.Settings.Topics)
	for i := range names {
		names[i] = fmt.Sprintf("in%d", i)
	}
	return names
}

// partitionsOf is how many an output has.
func (s Schedule) partitionsOf(output string) int {
	if output == outputTopic {
		return max(1, s.Settings.Partitions)
	}
	return 1
}

// Outputs are the topics that processes publish to: dead letters, retry topics where there are some, and what handlers emit.
func (s Schedule) Outputs() []string {
	names := s.LetterTopics()
	if s.Settings.Spill {
		names = append(names, retryTopics...)
	}
	if s.Settings.Emits > 0 {
		names = append(names, outputTopic)
	}
	return names
}
