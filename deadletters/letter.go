package deadletters

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/letterheader"
)

// A State says what became of a letter.
type State string

const (
	// Waiting: nobody has replayed it.
	Waiting State = "waiting"
	// Replayed: its publish was confirmed, or its handler has handled it.
	Replayed State = "replayed"
	// Uncertain: a replay was stopped while it was on its way. The next replay finds out, or says that it cannot.
	Uncertain State = "uncertain"
)

// A Letter is a dead letter as it is stored. What its headers do not say, or say in a malformed way, has its zero value: whoever
// may publish to the topic may write anything.
type Letter struct {
	broker.Place
	// Message is the letter itself, with all of its headers. It is a copy.
	Message *broker.Message

	// Where its message came from. OriginalPartition and OriginalOffset are -1 where that is not known.
	OriginalTopic     string
	OriginalPartition int32
	OriginalOffset    int64
	OriginalID        string // on brokers that name messages otherwise than by offset
	OriginalTime      time.Time

	// How it fared, and why it was given up.
	Attempts     int
	FirstFailure time.Time
	LastFailure  time.Time
	Class        string // of the error
	Error        string
	Handler      string

	// Replays is how often it was replayed before it came here again, and History what became of it each time.
	Replays int
	History []string

	// State says what became of it here; the other fields go with Replayed and Uncertain.
	State      State
	ReplayedAt time.Time
	ReplayedTo string
	ReplayedBy string // as who replayed it said, in Replay.By; empty where they did not
	Edited     bool
	// PerhapsTwice: it was replayed a second time since nobody could tell whether it had arrived.
	PerhapsTwice bool
}

// At is when the letter failed last, or when it was stored where it does not say that.
func (l *Letter) At() time.Time {
	if l.LastFailure.IsZero() {
		return l.Message.Time()
	}
	return l.LastFailure
}

// ParsePlace reads what FormatPlace wrote: partition/offset on Kafka, a sequence on JetStream.
func ParsePlace(s string) (p broker.Place, err error) {
	p.Partition = -1
	offset := s
	if partition, rest, parted := strings.Cut(s, "/"); parted {
		p.Partition, offset = int32(readNumber(partition, 32, -1)), rest
	}
	if p.Offset = readNumber(offset, 64, -1); p.Offset < 0 || FormatPlace(p) != s {
		return p, fmt.Errorf("%q: want partition/offset (Kafka) or a sequence (JetStream)", s)
	}
	return p, nil
}

// FormatPlace writes where a letter is: partition/offset on Kafka, a sequence on JetStream.
func FormatPlace(p broker.Place) string {
	if p.Partition < 0 {
		return strconv.FormatInt(p.Offset, 10)
	}
	return strconv.Itoa(int(p.Partition)) + "/" + strconv.FormatInt(p.Offset, 10)
}

// readLetter reads the headers of a stored message.
func readLetter(m *broker.Message) *Letter {
	m = m.Clone()
	h := letterheader.Read(m.Headers)
	l := &Letter{
		Place: broker.Place{Partition: m.Partition, Offset: m.Offset}, Message: m, State: Waiting,
		OriginalTopic:     cmp.Or(h.Topic, letterheader.ForeignTopic(m.Headers)),
		OriginalPartition: h.Partition, OriginalOffset: h.Offset, OriginalID: h.ID, OriginalTime: h.Time,
		Attempts: int(h.Attempts), FirstFailure: h.FirstFailure, LastFailure: h.LastFailure,
		Class: h.Class, Error: h.Error, Handler: h.Handler,
	}
	for k, v := range m.Headers.All() {
		switch k {
		case broker.HeaderReplays:
			l.Replays = int(readNumber(string(v), 31, 0))
		case broker.HeaderHistory:
			l.History = append(l.History, string(v))
		}
	}
	l.Replays = max(l.Replays, len(l.History))
	return l
}

func readNumber(s string, bits int, otherwise int64) int64 {
	n, err := strconv.ParseInt(s, 10, bits)
	if err != nil || n < 0 {
		return otherwise
	}
	return n
}

// A Filter chooses letters. The zero value takes all; what is set must all be so.
type Filter struct {
	// Handler and Class are as in the letter's headers: the consumer's name, and one of consumer.FailureClasses: error,
	// permanent, decode, oversize, timeout, panic, goexit or crash.
	Handler string
	Class   string
	// Since and Until bound Letter.At: at or after the first, before the second.
	Since time.Time
	Until time.Time
	// Key is the message's; nil takes all.
	Key []byte
	// Topic is where the message came from.
	Topic string
	// State is what became of the letter.
	State State
	// Places are the letters themselves.
	Places []broker.Place
}

// Match says whether a letter is chosen.
func (f Filter) Match(l *Letter) bool {
	at := l.At()
	switch {
	case f.Handler != "" && f.Handler != l.Handler,
		f.Class != "" && f.Class != l.Class,
		f.Topic != "" && f.Topic != l.OriginalTopic,
		f.State != "" && f.State != l.State,
		!f.Since.IsZero() && at.Before(f.Since),
		!f.Until.IsZero() && !at.Before(f.Until),
		f.Key != nil && (l.Message.Key == nil || !bytes.Equal(f.Key, l.Message.Key)):
		return false
	}
	if len(f.Places) == 0 {
		return true
	}
	for _, p := range f.Places {
		if p == l.Place {
			return true
		}
	}
	return false
}
