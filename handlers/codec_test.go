package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// said is a Codec that writes its name into a string.
type said string

func (s said) Decode(m *consumer.Message, v any) error {
	if string(m.Value) == "bad" {
		return errors.New(string(s) + " cannot read it")
	}
	*v.(*string) = string(s)
	return nil
}

func (s said) Accepts(v any) error {
	if _, ok := v.(*string); !ok {
		return fmt.Errorf("%s reads no %T", s, v)
	}
	return nil
}

func withType(name, value string) *consumer.Message {
	return &consumer.Message{Topic: "in", Headers: broker.NewHeaders(broker.Header{Key: name, Value: []byte(value)})}
}

func contentTypes(t testing.TB, codecs map[string]handlers.Codec, fallback handlers.Codec) *handlers.ContentTypes {
	t.Helper()
	c, err := handlers.NewContentTypes(codecs, fallback)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestContentTypes(t *testing.T) {
	codecs := map[string]handlers.Codec{"application/json": said("json"), "Application/Protobuf": said("protobuf"),
		"application/vnd.acme+json": said("acme")}
	strict, lax := contentTypes(t, codecs, nil), contentTypes(t, codecs, said("fallback"))
	for _, c := range []struct{ header, value, want, wrong string }{
		{"content-type", "application/json", "json", ""},
		{"Content-Type", "application/json", "json", ""},
		{"content-type", " Application/JSON ; charset=utf-8", "json", ""},
		{"content-type", "application/json;", "json", ""},
		{"content-type", "application/protobuf", "protobuf", ""},
		{"content-type", "application/vnd.acme+json", "acme", ""},
		{"content-type", "application/vnd.other.v2+json; x=y", "json", ""},
		{"content-type", "image/svg+json", "json", ""},
		{"content-type", "application/a+b+protobuf", "protobuf", ""},
		{"content-type", "application/cloudevents+json", "", "no codec for its content type, application/cloudevents+json"},
		{"content-type", "application/cloudevents-batch+json", "", "no codec"},
		{"content-type", "application/xml", "", "no codec for its content type, application/xml"},
		{"content-type", "application/x+xml", "", "no codec"},
		{"content-type", "json", "", "its content type, of 4 bytes, is none"},
		{"content-type", "can ary/json", "", "its content type, of 12 bytes, is none"},
		{"content-type", "a/" + strings.Repeat("b", 300), "", "its content type, of 302 bytes, is none"},
		{"content-type", "", "", "its content type, of 0 bytes, is none"},
		{"other", "application/json", "", "it has no content type"},
	} {
		var got string
		err := strict.Decode(withType(c.header, c.value), &got)
		if got != c.want || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s %q: %q, error %v; want %q, %q", c.header, c.value, got, err, c.want, c.wrong)
		}
		if c.header != "other" {
			continue
		}
		if err := lax.Decode(withType(c.header, c.value), &got); err != nil || got != "fallback" {
			t.Errorf("%s %q with a fallback: %q, error %v", c.header, c.value, got, err)
		}
	}
}

func TestContentTypesAreChecked(t *testing.T) {
	_, err := handlers.NewContentTypes(map[string]handlers.Codec{"json": said("a"), "a/b; c=d": said("b"), "a/b": nil,
		"x/y": said("c"), "X/Y": said("d")}, nil)
	for _, want := range []string{`"json": want one`, `"a/b; c=d": want one`, `"a/b": its codec is nil`, `"x/y" is there twice`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := handlers.NewContentTypes(nil, said("x")); err == nil {
		t.Error("none at all was accepted")
	}
}

// A codec that cannot decode into a type is a mistake of the program, found when the handler is made.
func TestTypedPanicsForTheWrongType(t *testing.T) {
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "typed handler of int: a/b: x reads no *int") {
			t.Errorf("panic %v", p)
		}
	}()
	c := contentTypes(t, map[string]handlers.Codec{"a/b": said("x"), "c/d": handlers.JSONCodec{}}, said("y"))
	handlers.Typed(c, func(context.Context, string, *consumer.Message) error { return nil }) // fits
	handlers.Typed(c, func(context.Context, int, *consumer.Message) error { return nil })
}

// b17: what cannot be decoded goes to the dead letters at once, says so there, and what comes after it in its partition goes on.
func TestUndecodableDoesNotHoldItsPartition(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}})
	for _, v := range []string{"good", "bad", "good"} {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("one"), Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	letters := b.Publisher()
	defer letters.Close(context.Background())
	handled := 0
	c, err := consumer.New(consumer.Config{
		Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Order: consumer.OrderPartition,
		DeadLetter: &consumer.DeadLetter{Publisher: letters, Topic: "dead"},
		Handler: handlers.Typed(said("codec"), func(context.Context, string, *consumer.Message) error {
			if handled++; handled == 2 {
				stop()
			}
			return nil
		})})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	dead := b.Messages("dead")
	if handled != 2 || len(dead) != 1 || b.Unsettled("group") != 0 {
		t.Fatalf("%d handled, %d dead letters, %d unsettled", handled, len(dead), b.Unsettled("group"))
	}
	var class, text string
	for name, v := range dead[0].Headers.All() {
		switch strings.ToLower(name) {
		case "longshore-class", "longshore-error-class":
			class = string(v)
		case "longshore-error":
			text = string(v)
		}
	}
	if class != "decode" || !strings.Contains(text, "decoding 3 bytes as string: codec cannot read it") {
		t.Errorf("class %q, error %q", class, text)
	}
}

// FuzzContentType: never a panic; what the standard library reads as a media type is read the same, and only what is one picks a
// codec.
func FuzzContentType(f *testing.F) {
	for _, s := range []string{"application/json", "a/b+json; q=\"x;y\"", "/", "a/", ";", "A/B ;", "text/plain; charset",
		"application/cloudevents+json", "a/b/c", "\x00/a"} {
		f.Add(s)
	}
	c := contentTypes(f, map[string]handlers.Codec{"application/json": said("json")}, nil)
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		err := c.Decode(withType("content-type", s), &got)
		kind, _, merr := mime.ParseMediaType(s)
		if merr != nil && !errors.Is(merr, mime.ErrInvalidMediaParameter) {
			kind = ""
		}
		switch {
		case kind == "application/json" && err != nil:
			t.Fatalf("%q is JSON: %v", s, err)
		case err == nil && kind != "" && kind != "application/json" && !strings.HasSuffix(kind, "+json"):
			t.Fatalf("%q, which is %s, was read as JSON", s, kind)
		case err != nil && (got != "" || len(err.Error()) > 400):
			t.Fatalf("%q: decoded %q, error %v", s, got, err)
		}
	})
}

// Producers that write JSON and others that write something else share a topic.
func ExampleNewContentTypes() {
	codec, err := handlers.NewContentTypes(map[string]handlers.Codec{
		"application/json": handlers.JSONCodec{},
		"text/csv":         csv{},
	}, handlers.JSONCodec{})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := handlers.Typed(codec, func(_ context.Context, o Sale, _ *consumer.Message) error {
		fmt.Println(o.ID, o.Cents)
		return nil
	})
	for kind, value := range map[string]string{"application/vnd.shop.sale+json; charset=utf-8": `{"id": "o-1", "cents": 995}`} {
		_ = h(context.Background(), &consumer.Message{Value: []byte(value),
			Headers: broker.NewHeaders(broker.Header{Key: "content-type", Value: []byte(kind)})})
	}
	csv := broker.NewHeaders(broker.Header{Key: "content-type", Value: []byte("text/csv")})
	_ = h(context.Background(), &consumer.Message{Value: []byte("o-2,495"), Headers: csv})
	err = h(context.Background(), &consumer.Message{Value: []byte("o-3"), Headers: csv})
	fmt.Println(err, consumer.IsPermanent(err))
	// Output:
	// o-1 995
	// o-2 495
	// decoding 3 bytes as handlers_test.Sale: want an id and cents true
}

// A Sale is what the examples decode.
type Sale struct {
	ID    string
	Cents int
}

// csv is a Codec of one's own.
type csv struct{}

func (csv) Decode(m *consumer.Message, v any) error {
	o := v.(*Sale)
	id, cents, _ := strings.Cut(string(m.Value), ",")
	if _, err := fmt.Sscan(cents, &o.Cents); err != nil {
		return errors.New("want an id and cents")
	}
	o.ID = id
	return nil
}

// quoting is a type whose own UnmarshalJSON quotes what it was given, around an error of encoding/json or of a reader.
type quoting struct{}

func (q *quoting) UnmarshalJSON(b []byte) error { return fmt.Errorf("order %s: %w", b, wrapped) }

// wrapped is in the errors of quoting.
var wrapped error

// What a type's own UnmarshalJSON says is not told, whatever error it has in it: it may quote the payload.
func TestJSONErrorsOfATypeAreQuiet(t *testing.T) {
	syntax := json.Unmarshal([]byte("{"), new(int))
	for _, wrapped = range []error{syntax, io.EOF, io.ErrUnexpectedEOF, errors.New("no")} {
		for _, strict := range []bool{false, true} {
			m := &consumer.Message{Value: []byte(`{"of": "4111 1111"}`)}
			var v struct {
				Of quoting `json:"of"`
			}
			err := handlers.JSONCodec{Strict: strict}.Decode(m, &v)
			if err == nil || strings.Contains(err.Error(), "4111") || !errors.Is(err, wrapped) {
				t.Errorf("strict %t, around %v: %v", strict, wrapped, err)
			}
		}
	}
}
