package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/longshoremq/longshore/consumer"
)

// JSON makes a Handler of a function that takes a value: the payload, decoded as encoding/json does. What cannot be decoded, an empty
// payload and a tombstone among it, is a Permanent error: no retry will cure it, so it is dead-lettered at once. Nesting is bounded by
// encoding/json (10,000 levels), size by consumer.Config.MaxMessageBytes.
func JSON[T any](f func(ctx context.Context, v T, m *consumer.Message) error) consumer.Handler {
	return typed(func(b []byte, v *T) error { return json.Unmarshal(b, v) }, f)
}

// StrictJSON is JSON that refuses fields which T does not have.
func StrictJSON[T any](f func(ctx context.Context, v T, m *consumer.Message) error) consumer.Handler {
	return typed(func(b []byte, v *T) error {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(v); err != nil {
			return err
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return errors.New("data after the value")
		}
		return nil
	}, f)
}

func typed[T any](decode func([]byte, *T) error, f func(context.Context, T, *consumer.Message) error) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		var v T
		if err := decode(m.Value, &v); err != nil {
			return consumer.Permanent(fmt.Errorf("decoding %d bytes as %T: %w", len(m.Value), v, withoutValue(err)))
		}
		return f(ctx, v, m)
	}
}

// withoutValue takes out of encoding/json's errors what they quote of the payload: a number that does not fit is told in full.
func withoutValue(err error) error {
	var e *json.UnmarshalTypeError
	if !errors.As(err, &e) {
		return err
	}
	kind, _, _ := strings.Cut(e.Value, " ")
	where := "the value"
	if e.Field != "" {
		where = "field " + e.Field
	}
	return fmt.Errorf("%s wants %s, is a %s", where, e.Type, kind)
}
