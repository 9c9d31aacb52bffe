package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/longshoremq/longshore/consumer"
)

// A Codec reads values from messages. Safe for concurrent use.
type Codec interface {
	// Decode sets what v, a pointer that is not nil, points to. Its error goes to logs and into the dead letter, so it must not
	// quote the payload.
	Decode(m *consumer.Message, v any) error
}

// An Accepter is a Codec that can decode only into some types. Typed asks it once, with a pointer as Decode will get, so that a
// mistake in the program is found when the handler is made and not message by message.
type Accepter interface {
	Codec
	// Accepts returns nil, or why v cannot be decoded into.
	Accepts(v any) error
}

// JSONCodec decodes payloads as encoding/json does. Nesting is bounded by that (10,000 levels), size by
// consumer.Config.MaxMessageBytes. An empty payload and a tombstone are no JSON. null is refused, since it would leave the value
// empty, except by what can be nil (a pointer, a map, a slice, an interface) or has an UnmarshalJSON. The zero value is ready.
type JSONCodec struct {
	// Strict refuses fields that the value does not have. Defaults to false: they are ignored, so that producers can add some.
	Strict bool
}

// Decode implements Codec.
func (c JSONCodec) Decode(m *consumer.Message, v any) error {
	if string(bytes.Trim(m.Value, " \t\r\n")) == "null" && !nullable(v) {
		return errors.New("null is no value of it")
	}
	if !c.Strict {
		return withoutValue(json.Unmarshal(m.Value, v))
	}
	d := json.NewDecoder(bytes.NewReader(m.Value))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return withoutValue(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the value")
	}
	return nil
}

// nullable says whether JSON's null makes something of what v points to.
func nullable(v any) bool {
	if _, own := v.(json.Unmarshaler); own {
		return true
	}
	switch t := reflect.TypeOf(v); {
	case t == nil || t.Kind() != reflect.Pointer: // encoding/json says so
		return true
	default:
		return slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface}, t.Elem().Kind())
	}
}

const (
	// unknownField begins what encoding/json says of one, whose name follows.
	unknownField = "json: unknown field "
	// longestName of such a field that is told: the name is the producer's, and may be anything.
	longestName = 64
)

// withoutValue takes out of encoding/json's errors what they quote of the payload: a number that does not fit is told in full,
// and what a type's own UnmarshalJSON says may be anything (time.Time quotes all of a string). The error itself can still be had
// with errors.As.
func withoutValue(err error) error {
	var typ *json.UnmarshalTypeError
	switch _, syntax := err.(*json.SyntaxError); { //nolint:errorlint // in an error of the type's own it is not all that is said
	case err == nil, syntax, err == io.EOF, err == io.ErrUnexpectedEOF: //nolint:errorlint // the same
		return err
	case strings.HasPrefix(err.Error(), unknownField):
		if name := err.Error()[len(unknownField):]; len(name) > longestName {
			return &quietError{fmt.Sprintf("unknown field with a name of %d bytes", len(name)), err}
		}
		return err
	case errors.As(err, &typ):
		kind, _, _ := strings.Cut(typ.Value, " ")
		where := "the value"
		if typ.Field != "" {
			where = "field " + typ.Field
		}
		return &quietError{fmt.Sprintf("%s wants %s, is a %s", where, typ.Type, kind), err}
	}
	return &quietError{fmt.Sprintf("a value does not fit its field (%T)", err), err}
}

// A quietError tells less than the error that it is.
type quietError struct {
	text string
	err  error
}

func (e *quietError) Error() string { return e.text }
func (e *quietError) Unwrap() error { return e.err }

// ContentTypes is a Codec that picks another by the message's content type: the header content-type, as the bindings of
// CloudEvents have it on Kafka and NATS (or Content-Type, as HTTP writes it). Case and parameters ("; charset=utf-8") do not
// matter. A type with a suffix, such as application/vnd.acme.order+json, is read by the codec of application/json where it has
// none of its own; but not application/cloudevents+json and its like: what they hold is an envelope, not the event's data.
type ContentTypes struct {
	codecs   map[string]Codec
	fallback Codec
}

// NewContentTypes takes the codecs by content type ("application/json"), and fallback for messages without one; nil: these cannot
// be decoded. The error names every key that is no content type.
func NewContentTypes(codecs map[string]Codec, fallback Codec) (*ContentTypes, error) {
	c := &ContentTypes{codecs: map[string]Codec{}, fallback: fallback}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(codecs)) {
		kind, ok := mediaType(name)
		switch {
		case !ok || strings.Contains(name, ";"):
			errs = append(errs, fmt.Errorf("handlers: content type %q: want one such as application/json, without parameters", name))
		case codecs[name] == nil:
			errs = append(errs, fmt.Errorf("handlers: content type %q: its codec is nil", name))
		case c.codecs[kind] != nil:
			errs = append(errs, fmt.Errorf("handlers: content type %q is there twice", kind))
		}
		c.codecs[kind] = codecs[name]
	}
	if len(codecs) == 0 {
		errs = append(errs, errors.New("handlers: content types: there is none"))
	}
	return c, errors.Join(errs...)
}

// Decode implements Codec.
func (c *ContentTypes) Decode(m *consumer.Message, v any) error {
	value, ok := lastOf(m, "content-type", "Content-Type")
	if !ok {
		if c.fallback == nil {
			return errors.New("it has no content type")
		}
		return c.fallback.Decode(m, v)
	}
	codec := c.codecs[string(value)] // mostly it is written just so
	if codec == nil {
		kind, ok := mediaType(string(value))
		if !ok {
			return fmt.Errorf("its content type, of %d bytes, is none", len(value))
		}
		if codec = c.find(kind); codec == nil {
			return fmt.Errorf("no codec for its content type, %s", kind)
		}
	}
	return codec.Decode(m, v)
}

// find is the codec of a media type, or of what its suffix says; nil: there is none.
func (c *ContentTypes) find(kind string) Codec {
	if codec := c.codecs[kind]; codec != nil {
		return codec
	}
	i := strings.LastIndexByte(kind, '+')
	if i < 0 || strings.HasPrefix(kind, "application/cloudevents") {
		return nil
	}
	return c.codecs["application/"+kind[i+1:]]
}

// Accepts implements Accepter: v must suit all of the codecs.
func (c *ContentTypes) Accepts(v any) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.codecs)) {
		if err := accepts(c.codecs[name], v); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(append(errs, accepts(c.fallback, v))...)
}

func accepts(c Codec, v any) error {
	if c, ok := c.(Accepter); ok {
		return c.Accepts(v)
	}
	return nil
}

// longestMediaType is that of RFC 6838, 4.2: two names of 127 characters.
const longestMediaType = 127 + 1 + 127

// mediaType is a content type in lower case and without its parameters, or not ok where there is none (RFC 9110, 8.3.1: two
// tokens and a slash).
func mediaType(s string) (kind string, ok bool) {
	s, _, _ = strings.Cut(s, ";")
	s = strings.TrimSpace(s) // as package mime does, so that a line break behind it does no harm
	major, minor, ok := strings.Cut(s, "/")
	if !ok || len(s) > longestMediaType || !token(major) || !token(minor) {
		return "", false
	}
	return strings.ToLower(s), true
}

// token says whether s is one of RFC 9110, 5.6.2.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// lastOf is the last value of the first of these headers that the message has.
func lastOf(m *consumer.Message, names ...string) ([]byte, bool) {
	for _, name := range names {
		if v, ok := m.Headers.Get(name); ok {
			return v, true
		}
	}
	return nil, false
}
