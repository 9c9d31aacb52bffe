package handlers

import (
	"context"

	"github.com/longshoremq/longshore/consumer"
)

// TypedBatch makes a BatchHandler of a function that takes the values of a batch, which c decodes, and their messages: vs[i] is
// of ms[i]. A message that cannot be decoded is not among them. It alone is dead-lettered at once, with the class decode, and
// where none can be decoded f is not called. T and panics are as in Typed.
//
// f's error is for all that it was given, and a *consumer.BatchError has an entry for each of these. With another number of
// entries all of them fail. What f emits is dropped where the batch has a message that cannot be decoded, as where any other
// fails, and the others are handled again, with no attempt counted. With an order and Batch.ByKey those behind such a message are
// handled again, too.
func TypedBatch[T any](c Codec, f func(ctx context.Context, vs []T, ms []*consumer.Message) error) consumer.BatchHandler {
	if f == nil {
		return nil
	}
	decode := decoderOf[T](c)
	return func(ctx context.Context, ms []*consumer.Message) error {
		vs, good := make([]T, 0, len(ms)), make([]*consumer.Message, 0, len(ms))
		errs := make([]error, len(ms))
		for i, m := range ms {
			v, err := decode(m)
			if errs[i] = err; err == nil {
				vs, good = append(vs, v), append(good, m)
			}
		}
		switch len(good) {
		case len(ms):
			return f(ctx, vs, ms)
		case 0:
			return &consumer.BatchError{Errs: errs}
		}
		each := consumer.BatchErrors(f(ctx, vs, good), len(good))
		for i := range errs {
			if errs[i] == nil {
				errs[i], each = each[0], each[1:]
			}
		}
		return &consumer.BatchError{Errs: errs}
	}
}

// JSONBatch is TypedBatch with JSONCodec: fields that T does not have are ignored.
func JSONBatch[T any](f func(ctx context.Context, vs []T, ms []*consumer.Message) error) consumer.BatchHandler {
	return TypedBatch(JSONCodec{}, f)
}
