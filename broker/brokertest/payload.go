package brokertest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

// payloads proves that keys, values and headers arrive as they were produced: empty, nil where the broker can tell, binary,
// repeated keys in their order, compared exactly; and that who appends to those of one message writes into no other.
func payloads(w *world) {
	binary := []byte{0, 1, 0xff, '\r', '\n', 0xfe, 0}
	want := make(map[string]broker.Outgoing)
	var ms []broker.Outgoing
	for _, key := range [][]byte{nil, {}, []byte("key"), []byte("späte Schicht"), []byte("a b/c:d")} {
		for _, value := range [][]byte{nil, {}, binary, []byte(strings.Repeat("long ", 1000))} {
			name := w.newID()
			m := broker.Outgoing{Topic: w.sys.Topics[0], Key: key, Value: value, Headers: []broker.Header{
				{Key: headerID, Value: []byte(name)},
				{Key: "Case-Twice", Value: []byte("first")},
				{Key: "Case-Empty", Value: []byte{}},
				{Key: "Case-Twice", Value: []byte("second")},
				{Key: "case-twice", Value: []byte("of another case")},
			}}
			want[name] = m
			ms = append(ms, m)
		}
	}
	w.sys.Produce(w, 0, ms...)
	m := w.join()
	for range ms {
		msg := m.take(1)[0]
		comparison{w, w.h}.same(msg, want[id(msg)])
		appendTo(msg)
		m.mustAck(msg)
	}
	w.produce(0, 1) // without headers
	bare := m.take(1)[0]
	if _, found := bare.Headers.Get("Case-Twice"); found {
		w.Error("a message without headers has one")
	}
	m.mustAck(bare)
	w.settled()
	w.handledOnce()
}

// appendTo appends to all bytes of a message, as a handler may: it must not write into what lies behind them, which the next
// messages may be.
func appendTo(m *broker.Message) {
	more := bytes.Repeat([]byte{0xaa}, 64)
	_, _ = append(m.Key, more...), append(m.Value, more...)
	for _, v := range m.Headers.All() {
		_ = append(v, more...)
	}
}

// A comparison is of what was handed out with what was produced, as far as the broker keeps it.
type comparison struct {
	testing.TB
	h *Harness
}

// same compares a message with what was produced.
func (c comparison) same(got *broker.Message, want broker.Outgoing) {
	c.Helper()
	name := id(got)
	if !c.h.NoKeys {
		c.sameBytes(name+": the key", got.Key, want.Key, c.h.NilKeyIsEmpty)
	}
	c.sameBytes(name+": the value", got.Value, want.Value, c.h.NilValueIsEmpty)
	var headers []string
	for k, v := range got.Headers.All() {
		if strings.HasPrefix(strings.ToLower(k), "case-") {
			headers = append(headers, fmt.Sprintf("%s=%q", k, v))
		}
	}
	var wanted []string
	for _, h := range want.Headers {
		wanted = append(wanted, fmt.Sprintf("%s=%q", h.Key, h.Value))
	}
	if !c.sameHeaders(headers, wanted) {
		c.Errorf("%s: headers are %v, want %v", name, headers, wanted)
	}
	if last, _ := got.Headers.Get("Case-Twice"); string(last) != "second" {
		c.Errorf("%s: Get of a repeated key returned %q, want its last value", name, last)
	}
	if v, found := got.Headers.Get("Case-Empty"); !found || len(v) != 0 {
		c.Errorf("%s: Get of an empty header returned %q, %v", name, v, found)
	}
	if _, found := got.Headers.Get("CASE-TWICE"); found {
		c.Errorf("%s: Get does not compare keys exactly", name)
	}
	if n := got.Headers.Len(); n < len(wanted) {
		c.Errorf("%s: Len is %d, want at least %d", name, n, len(wanted))
	}
}

// sameHeaders compares in order, or where the broker keeps the order within a key only, as sets with that order.
func (c comparison) sameHeaders(got, want []string) bool {
	if slices.Equal(got, want) {
		return true
	}
	if !c.h.HeadersByKey {
		return false
	}
	byKey := func(x, y string) int {
		kx, _, _ := strings.Cut(x, "=")
		ky, _, _ := strings.Cut(y, "=")
		return strings.Compare(kx, ky)
	}
	slices.SortStableFunc(got, byKey)
	slices.SortStableFunc(want, byKey)
	return slices.Equal(got, want)
}

func (c comparison) sameBytes(what string, got, want []byte, nilIsEmpty bool) {
	c.Helper()
	if !bytes.Equal(got, want) {
		c.Errorf("%s is %.40q (%d bytes), want %.40q (%d bytes)", what, got, len(got), want, len(want))
	} else if (got == nil) != (want == nil) && !nilIsEmpty {
		c.Errorf("%s is nil: %v, want %v", what, got == nil, want == nil)
	}
}

// bigMessage proves that a message of 1 MB arrives bit by bit, among small ones.
func bigMessage(w *world) {
	value := make([]byte, 1_000_000)
	rnd := rand.NewChaCha8([32]byte{7})
	_, _ = rnd.Read(value)
	name := w.newID()
	copy(value, name+".")
	w.produce(0, 2)
	w.sys.Produce(w, 0, broker.Outgoing{Topic: w.sys.Topics[0], Value: value})
	w.produce(0, 2)
	m := w.join()
	for range 5 {
		msg := m.take(1)[0]
		if id(msg) == name && !bytes.Equal(msg.Value, value) {
			w.Errorf("the big message's %d bytes differ from the %d that were produced", len(msg.Value), len(value))
		}
		m.mustAck(msg)
	}
	w.settled()
	w.handledOnce()
}

// bytesStay proves that a handler may keep a message: its bytes are not written again, however many come after it.
func bytesStay(w *world) {
	m := w.join(budget(8, 1<<20), chunk(3))
	var kept []*broker.Message
	var copies []*broker.Message
	for range 20 {
		w.sys.Produce(w, 0, w.filled(w.sys.Topics[0], 8, 200)...)
		for _, msg := range m.take(8) {
			kept, copies = append(kept, msg), append(copies, msg.Clone())
			m.mustAck(msg)
		}
	}
	w.settled()
	for i, msg := range kept {
		if !bytes.Equal(msg.Value, copies[i].Value) || msg.Offset != copies[i].Offset {
			w.Fatalf("message %d changed after it was handed out: %.20q, was %.20q", i, msg.Value, copies[i].Value)
		}
	}
}
