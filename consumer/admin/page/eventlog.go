package page

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/rs/zerolog"
)

// keptEvents are shown under /ui/events.
const keptEvents = 500

// An Event is a line of the log, as it is shown.
type Event struct {
	At       time.Time
	Level    string
	Consumer string
	Name     string
	Text     string // its other fields
	Bare     string // those without what a handler may have written, which may have of a payload
}

// An eventLog keeps the latest events of all consumers. It is what a logger writes to, so its events have the names and fields of
// the log, and not more of them than the log has. Safe for concurrent use.
type eventLog struct {
	mu   sync.Mutex
	ring ring[Event]
	now  func() time.Time
}

func newEventLog() *eventLog { return &eventLog{ring: newRing[Event](keptEvents), now: time.Now} }

// Write takes one line of JSON, as zerolog writes it.
func (l *eventLog) Write(line []byte) (int, error) {
	e := readEvent(line)
	e.At = l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring.add(e)
	return len(line), nil
}

func (l *eventLog) newest(n int) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ring.newest(n)
}

// What is kept of a line, in bytes: of a field (a stack is in the log), and of all its fields together.
const (
	fieldBytes = 300
	lineBytes  = 4 << 10
)

// readEvent reads a line, its fields in their order. What is no JSON gives what was read of it.
func readEvent(line []byte) (e Event) {
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return Event{Text: cut(string(line), fieldBytes)}
	}
	var names, text []string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			break
		}
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			break
		}
		value := string(raw)
		_ = json.Unmarshal(raw, &value) // a string's own text; anything else stays as it is written
		switch name, _ := key.(string); name {
		case "event":
			e.Name = cut(value, fieldBytes)
		case "consumer":
			e.Consumer = cut(value, fieldBytes)
		case zerolog.LevelFieldName:
			e.Level = cut(value, fieldBytes)
		default:
			names, text = append(names, name), append(text, cut(name, fieldBytes)+"="+cut(value, fieldBytes))
		}
	}
	var bare []string
	for i, one := range text {
		if !ofHandler(e.Name, names[i]) {
			bare = append(bare, one)
		}
	}
	e.Text, e.Bare = cut(strings.Join(text, "  "), lineBytes), cut(strings.Join(bare, "  "), lineBytes)
	return e
}

// ofHandler says whether a field of an event has what a handler said: an error, its stack, or why it skipped a message. A reason
// of other events is a word of ours.
func ofHandler(event, field string) bool {
	switch field {
	case zerolog.ErrorFieldName, zerolog.ErrorStackFieldName, "stack":
		return true
	case "reason":
		return event == consumer.Skipped{}.Name()
	}
	return false
}
