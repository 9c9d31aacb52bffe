package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// A Schedule says all that is done in a run. It is kept as JSON: see testdata/kept.
type Schedule struct {
	// Why is what it was kept for.
	Why string `json:"why,omitempty"`
	// World is the name of its Kind.
	World string `json:"world"`
	// Seed decides how each run of a handler acts, and other small things that Settings leave open.
	Seed     uint64   `json:"seed"`
	Settings Settings `json:"settings"`
	// Handlers says how they act, in percent of the runs; the others return nil soon.
	Handlers map[Act]int `json:"handlers,omitempty"`
	// Processes are there at the start.
	Processes int    `json:"processes"`
	Steps     []Step `json:"steps"`
	// Alone: no other process joins when it is calm, but where none is left. It would have a group share out its work anew, and so
	// cover up what was nobody's.
	Alone bool `json:"alone,omitempty"`
}

// Settings are those of the topics, and the same for each process.
type Settings struct {
	// Topics that are read; with several, each has a source of its own.
	Topics     int `json:"topics"`
	Partitions int `json:"partitions"` // of each topic
	Keys       int `json:"keys"`
	Keyless    int `json:"keyless,omitempty"` // percent of the messages

	Order consumer.Order `json:"order"`
	Lane  int            `json:"lane,omitempty"`  // Lane.Limit; 0: the default
	Batch int            `json:"batch,omitempty"` // its size; 0: one by one
	ByKey bool           `json:"by_key,omitempty"`
	// BatchBytes is at how many bytes a batch is complete; 0: the default, which none reaches.
	BatchBytes int `json:"batch_bytes,omitempty"`
	// Linger is how long a batch waits for others at most; 0: lingers. Where it is long, what gathers is copied first, and gathers
	// on.
	Linger Span `json:"linger,omitempty"`
	// Whole: a batch in which a handler fails has one error for all of it.
	Whole    bool `json:"whole,omitempty"`
	Levels   int  `json:"levels,omitempty"` // of priority; 0: none
	Strict   bool `json:"strict,omitempty"`
	Spill    bool `json:"spill,omitempty"` // there are retry topics
	Letters  bool `json:"letters,omitempty"`
	MakeRoom bool `json:"make_room,omitempty"` // LaneDeadLetter
	Routes   bool `json:"routes,omitempty"`    // some dead letters go to topics of their own: routes.go
	Attempts int  `json:"attempts"`
	// CrashLimit is after how many ends without a goodbye a message is run alone, and given up if that was one more; where the
	// adapter has such a setting (Kind.Suspects).
	CrashLimit int `json:"crash_limit,omitempty"`
	// Emits: handlers emit up to so many outputs for each message, which go with its ack; where they can (Kind.EmitsNot).
	Emits int `json:"emits,omitempty"`
	// Bridge: they go by a publisher of their own, before the ack.
	Bridge bool `json:"bridge,omitempty"`
	GiveUp Span `json:"give_up,omitempty"` // Retry.GiveUpAfter
	// Quick is the percent of the runs that take no time, but for those that shall be slow. Where most do, what follows in a lane
	// goes to its worker many at once.
	Quick int `json:"quick,omitempty"`

	// AtOnce is how many calls of a process may run at a time, and begin at once; 0: as many as there are workers. PerSecond is how
	// many begin. Share: they are those of all processes together, where these know their share (Kind.Shares).
	AtOnce    int  `json:"at_once,omitempty"`
	PerSecond int  `json:"per_second,omitempty"`
	Share     bool `json:"share,omitempty"`
	// Dedup: what was handled before in a process is skipped there.
	Dedup bool `json:"dedup,omitempty"`
	// Breaker: where many runs fail, calls wait, and are tried one by one.
	Breaker bool `json:"breaker,omitempty"`

	// Hooks: an observer asks the consumer about itself, and panics, an Around follows each call, and what was put off is woken.
	Hooks bool `json:"hooks,omitempty"`
	// Size is how many bytes a message has at most beside its number; 0: none. Bytes is the budget of bytes then. Oversize is the
	// percent of the messages that no handler is to see, for they are larger than MaxMessageBytes.
	Size     int   `json:"size,omitempty"`
	Bytes    int64 `json:"bytes,omitempty"`
	Oversize int   `json:"oversize,omitempty"`

	Workers  int `json:"workers"`
	Budget   int `json:"budget"`
	Prefetch int `json:"prefetch,omitempty"` // where the adapter has such a setting
	// Assigned: the broker assigns partitions, and not the processes; where it can (Kind.Assigns).
	Assigned bool `json:"assigned,omitempty"`

	Timeout    Span `json:"timeout,omitempty"`
	Lease      Span `json:"lease"` // or session
	RevokeWait Span `json:"revoke_wait"`
	Drain      Span `json:"drain"`
}

// place is the topic and partition that a fault with a number is done to.
func (s Schedule) place(n int) (topic string, partition int32) {
	inputs := s.Inputs()
	return inputs[n%len(inputs)], int32(n / len(inputs) % s.Settings.Partitions)
}

// has says whether some step has a fault of a kind.
func (s Schedule) has(whats ...What) bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool { return slices.Contains(whats, step.Fault.What) })
}

// A Step happens After the one before: messages are stored, then the fault is done.
type Step struct {
	After   Span  `json:"after"`
	Produce int   `json:"produce,omitempty"`
	Fault   Fault `json:"fault,omitzero"`
}

// A Fault is something that goes wrong, or is done to a process.
type Fault struct {
	What What `json:"what"`
	// Process that it is done to, counted from 0 in the order of their starts, modulo their number. Not used where it is done to
	// the broker.
	Process int `json:"process,omitempty"`
	// For is how long it lasts. Not used where it is over at once.
	For Span `json:"for,omitempty"`
	// N is how many, or which: see What.
	N int `json:"n,omitempty"`
}

// String is the fault in one short line.
func (f Fault) String() string {
	s := string(f.What)
	if whats[f.What].process {
		s += fmt.Sprintf(" p%d", f.Process)
	}
	if whats[f.What].lasts {
		s += fmt.Sprintf(" for %v", f.For)
	}
	if whats[f.What].counts {
		s += fmt.Sprintf(" n=%d", f.N)
	}
	return s
}

// A Span is a time.Duration that is written as text, as 1.5s.
type Span time.Duration

// String is as of a time.Duration.
func (s Span) String() string { return time.Duration(s).String() }

// MarshalText writes it as 1.5s.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads it.
func (s *Span) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	*s = Span(d)
	return err
}

// Messages is how many are stored in all.
func (s Schedule) Messages() int {
	n := 0
	for _, step := range s.Steps {
		n += step.Produce
	}
	return n
}

// Faults is how many there are.
func (s Schedule) Faults() int {
	n := 0
	for _, step := range s.Steps {
		if step.Fault.What != "" {
			n++
		}
	}
	return n
}

// String is the schedule as it is kept in a file.
func (s Schedule) String() string {
	b, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		panic(err) // it is numbers and words
	}
	return string(b) + "\n"
}
