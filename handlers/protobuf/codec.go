// Package protobuf has codecs for Protocol Buffers: their binary form and their JSON. It is apart from package handlers, so that
// programs which do without do not link google.golang.org/protobuf.
package protobuf

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Codec is a handlers.Codec of the binary form. Nesting is bounded by the library (10,000 levels), size by
// consumer.Config.MaxMessageBytes. An empty payload is a message without fields; a tombstone is none. The zero value is ready.
type Codec struct {
	// Strict refuses fields that the message does not have. Defaults to false: they are kept as unknown fields, so that producers
	// can add some.
	Strict bool
}

// Decode implements handlers.Codec.
func (c Codec) Decode(m *consumer.Message, v any) error {
	to, err := messageOf(m, v)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(m.Value, to); err != nil || !c.Strict {
		return err
	}
	return knownOnly(to)
}

// Accepts implements handlers.Accepter.
func (Codec) Accepts(v any) error { return accepts(v) }

// JSON is a handlers.Codec of the JSON form that Protocol Buffers define, which is not what encoding/json reads: fields in
// lowerCamelCase, 64-bit integers and bytes as strings. The zero value is ready.
type JSON struct {
	// Strict refuses fields that the message does not have. Defaults to false: they are ignored, so that producers can add some.
	Strict bool
}

// Decode implements handlers.Codec.
func (c JSON) Decode(m *consumer.Message, v any) error {
	to, err := messageOf(m, v)
	if err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: !c.Strict}).Unmarshal(m.Value, to); err != nil {
		return withoutValue(err)
	}
	return nil
}

// Accepts implements handlers.Accepter.
func (JSON) Accepts(v any) error { return accepts(v) }

// Handler is handlers.Typed with Codec: T is a generated message, *orders.Order say.
func Handler[T proto.Message](f func(ctx context.Context, v T, m *consumer.Message) error) consumer.Handler {
	return handlers.Typed(Codec{}, f)
}

func accepts(v any) error {
	if _, ok := v.(proto.Message); !ok {
		return fmt.Errorf("%T is no protobuf message", v)
	}
	return nil
}

func messageOf(m *consumer.Message, v any) (proto.Message, error) {
	if m.Value == nil {
		return nil, errors.New("it is a tombstone")
	}
	to, ok := v.(proto.Message)
	if !ok {
		return nil, accepts(v)
	}
	return to, nil
}

// place is where protojson says that something is wrong; what it says is wrong quotes the payload.
var place = regexp.MustCompile(`\(line [0-9]+:[0-9]+\)`)

func withoutValue(err error) error {
	if at := place.FindString(err.Error()); at != "" {
		return errors.New("it is no JSON of this message " + at)
	}
	return errors.New("it is no JSON of this message")
}

// knownOnly returns an error where m, or a message in it, has unknown fields. It does not say where: keys of maps are on the way
// there.
func knownOnly(m proto.Message) error {
	return protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		if in, ok := p.Index(-1).Value.Interface().(protoreflect.Message); ok && len(in.GetUnknown()) > 0 {
			return fmt.Errorf("unknown fields in a %s", in.Descriptor().FullName())
		}
		return nil
	})
}
