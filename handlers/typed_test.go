package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

type order struct {
	ID    string     `json:"id"`
	Total int8       `json:"total"`
	At    *time.Time `json:"at"`
	Text  int        `json:"text,string"`
}

// b17: what cannot be decoded is dead-lettered at once, without quoting what was in it.
func TestJSON(t *testing.T) {
	var got order
	take := func(_ context.Context, o order, _ *consumer.Message) error { got = o; return nil }
	for _, c := range []struct {
		name, body string
		strict     bool
		want       string // of the error; empty: it is decoded
	}{
		{"good", `{"id":"a","total":5}`, false, ""},
		{"good strict", ` {"id":"a","total":5} `, true, ""},
		{"unknown field", `{"id":"a","total":5,"x":1}`, false, ""},
		{"unknown field strict", `{"id":"a","total":5,"x":1}`, true, `unknown field "x"`},
		{"unknown field with a long name", `{"canary` + strings.Repeat("x", 1000) + `":1}`, true,
			"unknown field with a name of 1008 bytes"},
		{"null", `null`, false, "null is no value of it"},
		{"null strict", " null\n", true, "null is no value of it"},
		{"empty", ``, false, "unexpected end of JSON input"},
		{"empty strict", ``, true, "EOF"},
		{"cut", `{"id":"a`, false, "unexpected end"},
		{"no JSON", `<xml/>`, false, "invalid character"},
		{"two values", `{"id":"a"}{"id":"b"}`, false, "invalid character"},
		{"two values strict", `{"id":"a"}{"id":"b"}`, true, "data after the value"},
		{"wrong type", `{"id":"a","total":"canary"}`, false, "field total wants int8, is a string"},
		{"too large a number", `{"id":"a","total":4111111111111111}`, false, "field total wants int8, is a number"},
		{"a type's own decoder", `{"at":"canary"}`, false, "a value does not fit its field (*time.ParseError)"},
		{"a number in a string", `{"text":"canary"}`, false, "a value does not fit its field"},
		{"a number in a string, strict", `{"text":"canary"}`, true, "a value does not fit its field"},
		{"deep", strings.Repeat("[", 100_000), false, "exceeded max depth"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got = order{}
			h := handlers.JSON(take)
			if c.strict {
				h = handlers.StrictJSON(take)
			}
			o := handled(t, h, broker.Outgoing{Topic: "in", Value: []byte(c.body)})
			if c.want == "" {
				if !o.acked || got != (order{ID: "a", Total: 5}) {
					t.Errorf("outcome %+v, decoded %+v", o, got)
				}
				return
			}
			if !o.undecodable() || !strings.Contains(o.failed.Err.Error(), c.want) {
				t.Fatalf("outcome %+v, want an error of the class decode with %q", o.failed, c.want)
			}
			if text := o.failed.Err.Error(); strings.Contains(text, "4111") || strings.Contains(text, "canary") {
				t.Errorf("the payload is in the error: %s", text)
			}
		})
	}
}

// The function's own error is what the engine sees.
func TestJSONPassesErrors(t *testing.T) {
	own := errors.New("own")
	h := handlers.JSON(func(context.Context, order, *consumer.Message) error { return own })
	if err := h(t.Context(), message("in", `{}`)); !errors.Is(err, own) || consumer.IsPermanent(err) {
		t.Errorf("error %v", err)
	}
}

// A value is made for each message where the function takes a pointer, and what an error hides can still be had.
func TestTypedPointers(t *testing.T) {
	var got []*order
	h := handlers.JSON(func(_ context.Context, o *order, _ *consumer.Message) error { got = append(got, o); return nil })
	for _, body := range []string{`{"id":"a"}`, `{"total":1}`, `{}`} {
		if err := h(t.Context(), message("in", body)); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != 3 || *got[0] != (order{ID: "a"}) || *got[1] != (order{Total: 1}) || *got[2] != (order{}) {
		t.Errorf("decoded %+v", got)
	}
	var parse *time.ParseError
	if err := h(t.Context(), message("in", `{"at":"x"}`)); !errors.As(err, &parse) || !consumer.IsPermanent(err) {
		t.Errorf("error %v", err)
	}
}

// own is a type that says itself what null is.
type own struct{ null bool }

func (o *own) UnmarshalJSON(b []byte) error { o.null = string(b) == "null"; return nil }

// null is a value where the type has one for it, and elsewhere no empty value: it would be acked as an order without a field.
func TestJSONNull(t *testing.T) {
	for _, strict := range []bool{false, true} {
		c := handlers.JSONCodec{Strict: strict}
		refuses := func(v any, want bool) {
			if err := c.Decode(&consumer.Message{Value: []byte("\r\n\t null ")}, v); (err != nil) != want {
				t.Errorf("strict %v, %T: %v, want a refusal: %v", strict, v, err, want)
			}
		}
		refuses(new(order), true)
		refuses(new(int), true)
		refuses(new(string), true)
		refuses(new([2]int), true)
		refuses(new(struct{ order }), true)

		anything, list, table, pointer := any("x"), []int{1}, map[string]int{"a": 1}, new(order)
		raw, itself := json.RawMessage("x"), own{}
		refuses(&anything, false)
		refuses(&list, false)
		refuses(&table, false)
		refuses(&pointer, false)
		refuses(&raw, false)
		refuses(&itself, false)
		if anything != nil || list != nil || table != nil || pointer != nil || string(raw) != "null" || !itself.null {
			t.Errorf("strict %v: %v %v %v %v %s %v", strict, anything, list, table, pointer, raw, itself)
		}
		// A payload that only holds one is none, nor is what begins as one.
		for body, want := range map[string]bool{`{"at":null}`: false, `nullx`: true, `nul`: true} {
			if err := c.Decode(&consumer.Message{Value: []byte(body)}, new(order)); (err != nil) != want {
				t.Errorf("strict %v, %s: %v", strict, body, err)
			}
		}
	}
	// A pointer is made for each message, so that a function which takes one never gets nil; and so it is no empty order either.
	h := handlers.JSON(func(context.Context, *order, *consumer.Message) error { return nil })
	if err := h(t.Context(), message("in", `null`)); !consumer.IsPermanent(err) {
		t.Errorf("error %v", err)
	}
}

// FuzzJSON: any payload is decoded or refused, and what is said of it stays short.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"id":"a","total":5}`, `{"total":1e9}`, `{"at":"x"}`, `{"text":"7"}`, `[[[`, `{"a":{"b":[]}}`,
		"\xff", ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range []handlers.JSONCodec{{}, {Strict: true}} {
			var o order
			if err := c.Decode(&consumer.Message{Value: b}, &o); err != nil && len(err.Error()) > 200 {
				t.Fatalf("%d bytes about %d: %v", len(err.Error()), len(b), err)
			}
		}
	})
}

func ExampleJSON() {
	type Order struct {
		ID    string
		Cents int
	}
	h := handlers.JSON(func(_ context.Context, o Order, m *consumer.Message) error {
		fmt.Println(m.Topic, o.ID, o.Cents)
		return nil
	})
	_ = h(context.Background(), &consumer.Message{Topic: "orders", Value: []byte(`{"id": "o-1", "cents": 995}`)})
	err := h(context.Background(), &consumer.Message{Topic: "orders", Value: []byte(`{"id": 1}`)})
	fmt.Println(err, consumer.IsPermanent(err))
	// Output:
	// orders o-1 995
	// decoding 9 bytes as handlers_test.Order: field ID wants string, is a number true
}

// TestNoFunction: of no function there is no handler, also around it. Before, each message panicked and became a dead letter.
func TestNoFunction(t *testing.T) {
	around := func(h consumer.Handler) consumer.Handler {
		return func(ctx context.Context, m *consumer.Message) error { return h(ctx, m) }
	}
	none := handlers.JSON[int](nil)
	if none != nil || consumer.Chain(around)(none) != nil {
		t.Error("there is a handler of no function")
	}
	batch := handlers.JSONBatch[int](nil)
	if batch != nil || consumer.ChainBatch(consumer.AroundBatch(around))(batch) != nil {
		t.Error("there is a batch handler of no function")
	}
}

// What lacks its codec or its handler is found when it is made, and not by each message.
func TestTypedOfNothing(t *testing.T) {
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, "codec is nil") {
			t.Errorf("panic %q", p)
		}
	}()
	if handlers.One(handlers.JSONBatch[order](nil)) != nil {
		t.Error("a handler of no batch handler")
	}
	handlers.Typed(nil, func(context.Context, order, *consumer.Message) error { return nil })
	t.Error("a handler with no codec")
}
