package protobuf_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/handlers/protobuf"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/sourcecontextpb"
	"google.golang.org/protobuf/types/known/typepb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wire is a message of the test's type, which has fields, options and a nested message, with more bytes behind it.
func wire(t testing.TB, m proto.Message, more ...byte) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, more...)
}

func TestCodecs(t *testing.T) {
	sale := &typepb.Type{Name: "canary", SourceContext: &sourcecontextpb.SourceContext{FileName: "x"}}
	unknown := protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "canary")
	inside := wire(t, sale)
	inside = protowire.AppendBytes(protowire.AppendTag(inside, 5, protowire.BytesType), unknown) // merged into source_context
	deep := []byte{}
	for range 20_000 { // message in message, as an unknown group
		deep = protowire.AppendTag(deep, 999, protowire.StartGroupType)
	}
	for _, c := range []struct {
		name  string
		codec handlers.Codec
		value []byte
		want  string // of the error; empty: it is decoded
	}{
		{"binary", protobuf.Codec{}, wire(t, sale), ""},
		{"binary strict", protobuf.Codec{Strict: true}, wire(t, sale), ""},
		{"unknown field", protobuf.Codec{}, wire(t, sale, unknown...), ""},
		{"unknown field strict", protobuf.Codec{Strict: true}, wire(t, sale, unknown...), "unknown fields in a google.protobuf.Type"},
		{"unknown field inside", protobuf.Codec{}, inside, ""},
		{"unknown field inside strict", protobuf.Codec{Strict: true}, inside, "unknown fields in a google.protobuf.SourceContext"},
		{"cut", protobuf.Codec{}, wire(t, sale)[:3], "cannot parse invalid wire-format data"},
		{"no protobuf", protobuf.Codec{}, []byte("<canary/>"), "proto"},
		{"bad text", protobuf.Codec{}, []byte{0x0a, 2, 0xff, 0xfe}, "invalid UTF-8"},
		{"deep", protobuf.Codec{}, deep, "proto"},
		{"tombstone", protobuf.Codec{}, nil, "it is a tombstone"},
		{"JSON", protobuf.JSON{}, []byte(`{"name":"canary","sourceContext":{"fileName":"x"},"more":1}`), ""},
		{"JSON strict", protobuf.JSON{Strict: true}, []byte(`{"name":"canary","canary":1}`), "no JSON of this message (line 1:18)"},
		{"JSON value", protobuf.JSON{}, []byte(`{"name":["canary"]}`), "no JSON of this message (line 1:9)"},
		{"JSON enum", protobuf.JSON{Strict: true}, []byte(`{"syntax":"canary"}`), "no JSON of this message (line 1:11)"},
		{"JSON empty", protobuf.JSON{}, []byte{}, "no JSON of this message"},
		{"JSON deep", protobuf.JSON{}, []byte(strings.Repeat(`{"sourceContext":`, 20_000)), "no JSON of this message"},
		{"JSON tombstone", protobuf.JSON{}, nil, "it is a tombstone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got *typepb.Type
			h := handlers.Typed(c.codec, func(_ context.Context, v *typepb.Type, _ *consumer.Message) error { got = v; return nil })
			err := h(t.Context(), &consumer.Message{Topic: "in", Value: c.value})
			if c.want == "" {
				if err != nil || got.GetName() != "canary" || got.GetSourceContext().GetFileName() != "x" {
					t.Errorf("decoded %v, error %v", got, err)
				}
				return
			}
			if err == nil || !consumer.IsPermanent(err) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want a permanent one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("the payload is in the error: %v", err)
			}
		})
	}
}

// An empty payload is a message whose fields all have their defaults: that is how it is written.
func TestEmptyIsAMessage(t *testing.T) {
	n := 0
	h := protobuf.Handler(func(_ context.Context, v *typepb.Type, _ *consumer.Message) error {
		if n++; v == nil || v.GetName() != "" {
			t.Errorf("decoded %v", v)
		}
		return nil
	})
	if err := h(t.Context(), &consumer.Message{Value: []byte{}}); err != nil || n != 1 {
		t.Errorf("%d calls, error %v", n, err)
	}
}

func TestWrongTypesAreRefused(t *testing.T) {
	for _, c := range []handlers.Codec{protobuf.Codec{}, protobuf.JSON{}} {
		var v string
		if err := c.Decode(&consumer.Message{Value: []byte{}}, &v); err == nil ||
			!strings.Contains(err.Error(), "*string is no protobuf message") {
			t.Errorf("%T: error %v", c, err)
		}
		func() {
			defer func() {
				if p := recover(); p == nil {
					t.Errorf("%T made a handler of strings", c)
				}
			}()
			handlers.Typed(c, func(context.Context, string, *consumer.Message) error { return nil })
		}()
	}
}

// FuzzCodecs: any payload is decoded or refused, and what was decoded strictly is the same once written and read again.
func FuzzCodecs(f *testing.F) {
	f.Add(wire(f, &typepb.Type{Name: "a", Oneofs: []string{"b"}}))
	f.Add([]byte(`{"name":"a"}`))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &consumer.Message{Value: b}
		for _, c := range []handlers.Codec{protobuf.Codec{}, protobuf.Codec{Strict: true}, protobuf.JSON{},
			protobuf.JSON{Strict: true}} {
			var v, again typepb.Type
			if err := c.Decode(m, &v); err != nil {
				if len(err.Error()) > 300 {
					t.Fatalf("%T: %v", c, err)
				}
				continue
			}
			if err := (protobuf.Codec{}).Decode(&consumer.Message{Value: append([]byte{}, wire(t, &v)...)}, &again); err != nil ||
				!proto.Equal(&v, &again) {
				t.Fatalf("%T: %v became %v, error %v", c, &v, &again, err)
			}
		}
	})
}

// Producers move from JSON to protobuf one by one; the content type says which it is.
func ExampleCodec() {
	codec, err := handlers.NewContentTypes(map[string]handlers.Codec{
		"application/protobuf": protobuf.Codec{},
		"application/json":     protobuf.JSON{},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	h := handlers.Typed(codec, func(_ context.Context, c *sourcecontextpb.SourceContext, _ *consumer.Message) error {
		fmt.Println(c.GetFileName())
		return nil
	})
	binary, _ := proto.Marshal(&sourcecontextpb.SourceContext{FileName: "binary"})
	for _, m := range []struct{ kind, value string }{
		{"application/protobuf", string(binary)}, {"application/json", `{"fileName": "json"}`}, {"application/protobuf", "neither"},
	} {
		err := h(context.Background(), &consumer.Message{Value: []byte(m.value),
			Headers: broker.NewHeaders(broker.Header{Key: "content-type", Value: []byte(m.kind)})})
		if err != nil {
			fmt.Println("permanent:", consumer.IsPermanent(err))
		}
	}
	// Output:
	// binary
	// json
	// permanent: true
}

func ExampleHandler() {
	h := protobuf.Handler(func(_ context.Context, c *sourcecontextpb.SourceContext, m *consumer.Message) error {
		fmt.Println(m.Topic, c.GetFileName())
		return nil
	})
	value, _ := proto.Marshal(&sourcecontextpb.SourceContext{FileName: "a.proto"})
	_ = h(context.Background(), &consumer.Message{Topic: "files", Value: value})
	// Output: files a.proto
}
