package broker_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/longshoremq/longshore/broker"
)

// lines is a HeaderCodec for tests: a header a line, "key: value".
type lines struct{}

func (lines) All(raw []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for line := range bytes.Lines(raw) {
			k, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
			if ok && !yield(string(k), v) {
				return
			}
		}
	}
}

func (c lines) Len(raw []byte) (n int) {
	for range c.All(raw) {
		n++
	}
	return n
}

func (c lines) Get(raw []byte, key string) (value []byte, found bool) {
	for k, v := range c.All(raw) {
		if k == key {
			value, found = v, true
		}
	}
	return value, found
}

func TestHeadersZeroValueIsEmpty(t *testing.T) {
	for name, h := range map[string]broker.Headers{"zero": {}, "bytes without a codec": {Raw: []byte("a: 1")}} {
		if n := h.Len(); n != 0 {
			t.Errorf("%s: Len is %d", name, n)
		}
		if v, ok := h.Get("a"); ok || v != nil {
			t.Errorf("%s: Get returned %q, %v", name, v, ok)
		}
		for k := range h.All() {
			t.Errorf("%s: All yielded %q", name, k)
		}
	}
}

func TestHeadersUseTheirCodec(t *testing.T) {
	h := broker.Headers{Raw: []byte("a: 1\nb: 2\na: 3\n"), Codec: lines{}}
	if h.Len() != 3 {
		t.Errorf("Len is %d, want 3", h.Len())
	}
	if v, ok := h.Get("a"); !ok || string(v) != "3" {
		t.Errorf("Get returned %q, %v, want the last value", v, ok)
	}
	var got []string
	for k, v := range h.All() {
		got = append(got, k+"="+string(v))
		if len(got) == 2 {
			break
		}
	}
	if strings.Join(got, " ") != "a=1 b=2" {
		t.Errorf("All yielded %v", got)
	}
}

// A name is a log's where there is an offset, and else the message's own.
func TestNameIsOfLogOrMessage(t *testing.T) {
	if m := (&broker.Message{Offset: 0, Name: "orders-1/0"}); m.Log() != "orders-1/0" || m.ID() != "" {
		t.Errorf("with an offset: log %q, ID %q", m.Log(), m.ID())
	}
	if m := (&broker.Message{Offset: -1, Name: "5-0"}); m.Log() != "" || m.ID() != "5-0" {
		t.Errorf("without one: log %q, ID %q", m.Log(), m.ID())
	}
}

// The engine makes 64 messages at once: 168 bytes each fill a size class of Go's allocator, and more would take the next.
func TestMessageFitsItsSizeClass(t *testing.T) {
	if n := unsafe.Sizeof(broker.Message{}); unsafe.Sizeof(uintptr(0)) == 8 && n > 168 {
		t.Errorf("a message has %d bytes, want at most 168", n)
	}
}

func TestCloneSharesNoBytes(t *testing.T) {
	c, _ := broker.NewClaim("orders", 1, nil)
	m := &broker.Message{
		Topic: "orders", Partition: 1, Offset: 7, Name: "log", Key: []byte("key"), Value: []byte("value"),
		Headers: broker.Headers{Raw: []byte("a: 1"), Codec: lines{}}, Nanos: 5, Attempt: 2, Runs: 1, Token: 9, Claim: c,
	}
	got := m.Clone()
	clear(m.Key)
	clear(m.Value)
	clear(m.Headers.Raw)
	if string(got.Key) != "key" || string(got.Value) != "value" {
		t.Errorf("the clone's key and value changed: %q, %q", got.Key, got.Value)
	}
	if v, _ := got.Headers.Get("a"); string(v) != "1" {
		t.Errorf("the clone's header changed: %q", v)
	}
	if got.Token != 9 || got.Claim != c || got.Offset != 7 || got.Attempt != 2 || got.Runs != 1 || got.Name != "log" ||
		got.Nanos != 5 {
		t.Errorf("the clone is %+v", got)
	}
}

func TestCloneKeepsNilApartFromEmpty(t *testing.T) {
	for _, m := range []broker.Message{{}, {Key: []byte{}, Value: []byte{}}} {
		got := m.Clone()
		if (got.Key == nil) != (m.Key == nil) || (got.Value == nil) != (m.Value == nil) {
			t.Errorf("clone of %#v, %#v is %#v, %#v", m.Key, m.Value, got.Key, got.Value)
		}
	}
}

func TestMessageTime(t *testing.T) {
	want := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	m := broker.Message{Nanos: want.UnixNano()}
	if !m.Time().Equal(want) {
		t.Errorf("Time is %v, want %v", m.Time(), want)
	}
}

func TestPublishError(t *testing.T) {
	down := errors.New("broker is down")
	err := error(&broker.PublishError{Errs: []error{nil, fmt.Errorf("too large: %w", broker.ErrRefused), down}})
	if !errors.Is(err, broker.ErrRefused) || !errors.Is(err, down) || errors.Is(err, broker.ErrClosed) {
		t.Errorf("errors.Is does not see the messages' errors: %v", err)
	}
	var pe *broker.PublishError
	if !errors.As(fmt.Errorf("dead letter: %w", err), &pe) || len(pe.Errs) != 3 || pe.Errs[0] != nil {
		t.Errorf("errors.As returned %+v", pe)
	}
	for _, want := range []string{"too large", "broker is down"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the text %q lacks %q", err, want)
		}
	}
	if got := (&broker.PublishError{Errs: []error{nil}}).Error(); got == "" {
		t.Error("a PublishError without errors has no text")
	}
}

func TestKindNames(t *testing.T) {
	seen := map[string]bool{}
	for k := broker.Assigned; k <= broker.Notice; k++ {
		if s := k.String(); s == "" || s == "unknown" || seen[s] {
			t.Errorf("kind %d is named %q", k, s)
		}
		seen[k.String()] = true
	}
	for _, k := range []broker.Kind{-1, 0, broker.Notice + 1} {
		if k.String() != "unknown" {
			t.Errorf("kind %d is named %q", k, k)
		}
	}
}

func TestUnknownLag(t *testing.T) {
	if l := broker.UnknownLag(); l.Waiting != -1 || l.Unsettled != -1 || !l.At.IsZero() {
		t.Errorf("unknown lag is %+v", l)
	}
}
