package handlers

import (
	"context"
	"fmt"
	"reflect"

	"github.com/longshoremq/longshore/consumer"
)

// Typed makes a Handler of a function that takes a value, which c decodes. Where T is a pointer, *Order say, a new Order is made
// for each message. What cannot be decoded is a Permanent error of the class decode: no retry will cure it, so it is
// dead-lettered at once, and what comes after it goes on. Typed panics where c is nil, or an Accepter that does not accept T, for
// that is a mistake in the program; of no function it makes no Handler, which consumer.New finds.
func Typed[T any](c Codec, f func(ctx context.Context, v T, m *consumer.Message) error) consumer.Handler {
	if f == nil {
		return nil
	}
	decode := decoderOf[T](c)
	return func(ctx context.Context, m *consumer.Message) error {
		v, err := decode(m)
		if err != nil {
			return err
		}
		return f(ctx, v, m)
	}
}

// decoderOf returns what decodes a T of a message by c. Its errors decide about the message. It panics as Typed does.
func decoderOf[T any](c Codec) func(m *consumer.Message) (T, error) {
	t := reflect.TypeFor[T]()
	pointer := t.Kind() == reflect.Pointer
	place := func(v *T) any { // what Decode gets
		if !pointer {
			return v
		}
		*v, _ = reflect.TypeAssert[T](reflect.New(t.Elem()))
		return *v
	}
	if c == nil {
		panic(fmt.Sprintf("handlers: typed handler of %s: its codec is nil", t))
	}
	if err := accepts(c, place(new(T))); err != nil {
		panic(fmt.Sprintf("handlers: typed handler of %s: %v", t, err))
	}
	return func(m *consumer.Message) (v T, err error) {
		if err := c.Decode(m, place(&v)); err != nil {
			return v, consumer.Undecodable(fmt.Errorf("decoding %d bytes as %s: %w", len(m.Value), t, err))
		}
		return v, nil
	}
}

// JSON is Typed with JSONCodec: fields that T does not have are ignored.
func JSON[T any](f func(ctx context.Context, v T, m *consumer.Message) error) consumer.Handler {
	return Typed(JSONCodec{}, f)
}

// StrictJSON is JSON that refuses fields which T does not have.
func StrictJSON[T any](f func(ctx context.Context, v T, m *consumer.Message) error) consumer.Handler {
	return Typed(JSONCodec{Strict: true}, f)
}
