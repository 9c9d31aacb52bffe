package consumer

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/letterheader"
)

// letter is a message on its way to the dead letters, or to a retry topic. It stays claimed and in the budget until its publish
// is confirmed.
type letter struct {
	item
	failed Failed
	topic  string // where it goes
	// began and last are when it failed first and last, by the wall clock.
	began, last time.Time
	tries       int32
	cut         bool // refused with all headers; now with ours only, and with the beginning of its error
	// step and due are set for a retry topic: which, and when its message's delay has passed.
	step RetryStep
	due  time.Time
}

// retries says whether x is for a retry topic.
func (x *letter) retries() bool { return x.step.Topic != "" }

// So many bytes of a failure's text go into a header, and so many into that of a letter that is too large with all.
const (
	maxErrorBytes = 1 << 10
	cutErrorBytes = 1 << 7
)

// errorText is the text of the failure, fit for a header.
func (x *letter) errorText() string {
	if x.cut {
		return headerText(x.failed.Err.Error(), cutErrorBytes)
	}
	return headerText(x.failed.Err.Error(), maxErrorBytes)
}

func header(key, value string) broker.Header { return broker.Header{Key: key, Value: []byte(value)} }

// outgoing is the letter as it is published, but for its ID: payload and key untouched, the message's own headers unless they
// were cut, then ours.
func outgoing(x letter, name string) broker.Outgoing {
	m := x.failed.Message
	o := broker.Outgoing{Topic: x.topic, Key: m.Key, Value: m.Value,
		Headers: make([]broker.Header, 0, m.Headers.Len()+letterheader.Most)}
	for k, v := range m.Headers.All() {
		if x.cut && k != broker.HeaderReplays { // that count goes with it whatever happens: it ends a circle of replays
			continue
		}
		if !broker.IsLetterHeader(k) {
			o.Headers = append(o.Headers, broker.Header{Key: k, Value: v})
		}
	}
	h := letterheader.Headers{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, ID: headerText(m.ID(), maxErrorBytes), Time: m.Time(),
		Attempts: x.failed.Runs, FirstFailure: x.began, LastFailure: x.last,
		Class: x.failed.Class, Error: x.errorText(), Handler: name,
	}
	if x.retries() {
		h.RetryAt = time.Now().Add(x.step.Delay)
	}
	o.Headers = h.Append(o.Headers)
	return o
}

// letterID names the letter, so that a second copy, published after a crash between publish and ack, can be told and dropped.
func letterID(m *Message, who string) string {
	b := make([]byte, 0, len(who)+len(m.Topic)+len(m.ID())+64)
	return string(appendPlace(append(append(b, who...), '/'), m))
}

// appendPlace appends where a message stands. The time is in it because a recreated stream uses its sequences again. Of core NATS
// a message stands nowhere, and the time is when it came: several may have one, where the clock is coarse, and are told apart by
// their tokens. Such a one never comes again.
func appendPlace(b []byte, m *Message) []byte {
	b = append(append(b, m.Topic...), '/')
	b = append(strconv.AppendInt(b, int64(m.Partition), 10), '/')
	b = append(strconv.AppendInt(b, m.Offset, 10), '/')
	b = append(append(b, m.ID()...), '/')
	b = strconv.AppendInt(b, m.Nanos, 10)
	if m.Offset < 0 && m.ID() == "" {
		b = strconv.AppendUint(append(b, '/'), m.Token, 10)
	}
	return b
}

// headerText makes a text fit for a header: one line, valid UTF-8, of so many bytes at most.
func headerText(s string, most int) string {
	if len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, isControl) {
		return s
	}
	b := make([]byte, 0, min(len(s), most))
	for _, r := range s {
		if len(b)+utf8.RuneLen(r) > most {
			break
		}
		if isControl(r) {
			r = ' '
		}
		b = utf8.AppendRune(b, r)
	}
	return string(b)
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
