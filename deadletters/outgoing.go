package deadletters

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/letterheader"
)

// Why a letter is not replayed.
var (
	// ErrReplays: it came back as often as Replay.MaxReplays.
	ErrReplays = errors.New("it was replayed as often as is allowed, and came back each time")
	// ErrNoOrigin: it does not say where it came from, and Replay.To is not set.
	ErrNoOrigin = errors.New("it does not say where it came from")
	// ErrCircle: it would go to its own dead-letter topic.
	ErrCircle = errors.New("it would go to the dead letters again")
	// ErrForeign: it says that it came from a topic that Replay.Allow does not allow. One that is the broker's own is
	// broker.ErrReserved.
	ErrForeign = errors.New("it says that it came from a topic that is not this consumer's")
	// ErrEdited: Replay.Edit has changed its topic, which To is for, or its ID.
	ErrEdited = errors.New("its topic or ID was edited")
)

// destination is where a letter goes, or why it is refused. It does not look at State.
func destination(l *Letter, topic string, o Replay) (to string, err error) {
	switch {
	case l.Replays >= o.MaxReplays:
		return "", fmt.Errorf("%w: %d times (the limit is %d)", ErrReplays, l.Replays, o.MaxReplays)
	case o.Handle != nil:
		return o.HandlerName, nil
	case o.To != "":
		return o.To, nil
	case l.OriginalTopic == "":
		return "", ErrNoOrigin
	}
	if err := allowed(l.OriginalTopic, topic, o); err != nil {
		return "", err
	}
	return l.OriginalTopic, nil
}

// allowed says whether a letter may go to the topic that it names.
func allowed(to, topic string, o Replay) error {
	switch err := broker.CheckDestination(to); {
	case err != nil:
		return err
	case to == topic || to == JournalTopic(topic):
		return fmt.Errorf("%w: %q", ErrCircle, to)
	case !o.Allow(to):
		return fmt.Errorf("%w: %q", ErrForeign, to)
	}
	return nil
}

// replayID names a replayed letter, the same at each try, so that a second copy can be told and dropped. log is in it because a
// topic that was made again uses its offsets again.
func replayID(topic, log string, p broker.Place, suffix string) string {
	id := "replay/" + topic + "/" + log + "/" + FormatPlace(p)
	if suffix != "" {
		id += "/" + suffix
	}
	return id
}

const (
	// maxHistory is how many lives are told of.
	maxHistory = 10
	// maxErrorText of an error goes into a line of the history.
	maxErrorText = 200
)

// outgoing is the letter's message as it is replayed: payload, key and its own headers, how often, and what became of it.
func outgoing(l *Letter, topic, to, id string, now time.Time) broker.Outgoing {
	m := l.Message
	o := broker.Outgoing{Topic: to, Key: m.Key, Value: m.Value, ID: id}
	if to == l.OriginalTopic && l.OriginalPartition >= 0 { // whoever has written it there may have chosen by another hash of the key
		o.Partition = &l.OriginalPartition
	}
	for k, v := range m.Headers.All() {
		if isOwn(k, v) {
			o.Headers = append(o.Headers, broker.Header{Key: k, Value: v})
		}
	}
	o.Headers = append(o.Headers, broker.Header{Key: broker.HeaderReplays, Value: []byte(strconv.Itoa(l.Replays + 1))})
	lives := append(l.History[:len(l.History):len(l.History)], life(l, topic, now))
	for _, h := range lives[max(0, len(lives)-maxHistory):] {
		o.Headers = append(o.Headers, broker.Header{Key: broker.HeaderHistory, Value: []byte(h)})
	}
	return o
}

// replayedID is where a publisher of NATS writes the id of a message that is published on: it is told by Longshore-History where
// that was a replay.
const replayedID = broker.ReservedPrefix + "Nats-Msg-Id"

// isOwn says whether a letter's header is of the message in it. Those that begin with Nats- are the server's.
func isOwn(key string, value []byte) bool {
	if key == replayedID && bytes.HasPrefix(value, []byte("replay/")) {
		return false
	}
	if letterheader.IsForeign(key) {
		return false
	}
	if len(key) >= 5 && strings.EqualFold(key[:5], "Nats-") {
		return false
	}
	return key != broker.HeaderReplays && key != broker.HeaderHistory && !broker.IsLetterHeader(key)
}

// life is a line of history: how the message fared this time.
func life(l *Letter, topic string, now time.Time) string {
	var b strings.Builder
	field := func(name, value string) {
		if value == "" {
			return
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == '"' || r == '=' || r > '~' }) {
			value = strconv.QuoteToASCII(value)
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(name + "=" + value)
	}
	moment := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	field("letter", topic+"/"+FormatPlace(l.Place))
	if l.OriginalOffset >= 0 {
		field("original", l.OriginalTopic+"/"+FormatPlace(broker.Place{Partition: l.OriginalPartition, Offset: l.OriginalOffset}))
	}
	if l.Attempts > 0 {
		field("attempts", strconv.Itoa(l.Attempts))
	}
	field("handler", l.Handler)
	field("class", l.Class)
	field("first", moment(l.FirstFailure))
	field("last", moment(l.LastFailure))
	field("replayed", moment(now))
	field("error", strings.ToValidUTF8(l.Error[:min(len(l.Error), maxErrorText)], ""))
	return b.String()
}

// asMessage is what a handler gets: the message as it was in its original topic.
func asMessage(l *Letter, o broker.Outgoing) *broker.Message {
	m := &broker.Message{
		Topic: l.OriginalTopic, Partition: l.OriginalPartition, Offset: l.OriginalOffset,
		Key: o.Key, Value: o.Value, Headers: broker.NewHeaders(o.Headers...), Nanos: l.Message.Nanos, Attempt: 1,
	}
	if m.Offset < 0 {
		m.Name = o.ID
	}
	if !l.OriginalTime.IsZero() {
		m.Nanos = l.OriginalTime.UnixNano()
	}
	return m
}
