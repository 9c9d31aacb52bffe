package handlers

import (
	"context"
	"fmt"

	"github.com/longshoremq/longshore/consumer"
)

// A BatchFactory makes a batch handler from its options, by the same rules as a Factory.
type BatchFactory func(s *Setup, o Options) (consumer.BatchHandler, error)

// One makes of a batch handler one for single messages, each of which is a batch: to run a message of the dead letters again, for
// example. Of none it makes none, which consumer.New finds.
func One(h consumer.BatchHandler) consumer.Handler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, m *consumer.Message) error {
		return consumer.BatchErrors(h(ctx, []*consumer.Message{m}), 1)[0]
	}
}

// A shipment is a batch on its way to somebody who takes all of it or nothing, such as a server or a command.
type shipment struct {
	// encode makes a message's part; its error decides about the message, which is left out.
	encode func(m *consumer.Message) ([]byte, error)
	// send sends the parts of messages, one at least. Its error decides about all of them.
	send func(ctx context.Context, ms []*consumer.Message, parts [][]byte) error
}

// handle is a consumer.BatchHandler. Where those who get it say that a retry will not help, they speak of all, and perhaps mean
// one: then it is sent again in halves, until the message that they mean is alone.
func (s shipment) handle(ctx context.Context, ms []*consumer.Message) error {
	errs := make([]error, len(ms))
	var index []int
	var parts [][]byte
	for i, m := range ms {
		part, err := s.encode(m)
		if errs[i] = err; err == nil {
			index, parts = append(index, i), append(parts, part)
		}
	}
	s.halves(ctx, ms, parts, index, errs)
	for _, err := range errs {
		if err != nil {
			return &consumer.BatchError{Errs: errs}
		}
	}
	return nil
}

// halves sends the messages at index, whose parts these are, and writes down what became of them.
func (s shipment) halves(ctx context.Context, ms []*consumer.Message, parts [][]byte, index []int, errs []error) {
	if len(index) == 0 {
		return
	}
	some := make([]*consumer.Message, len(index))
	for j, i := range index {
		some[j] = ms[i]
	}
	err := s.send(ctx, some, parts)
	half := len(index) / 2
	switch {
	case half == 0 || !consumer.IsPermanent(err):
	case ctx.Err() == nil:
		s.halves(ctx, ms, parts[:half], index[:half], errs)
		s.halves(ctx, ms, parts[half:], index[half:], errs)
		return
	default: // no time is left to find out which one they mean, and the others must not be given up with it
		err = fmt.Errorf("%w: of %d messages one was refused at least: %v", context.Cause(ctx), len(index), err)
	}
	for _, i := range index {
		errs[i] = err
	}
}
