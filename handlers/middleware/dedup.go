package middleware

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/golang-lru/v2"
	"github.com/longshoremq/longshore/consumer"
)

// Dedup skips messages that this process has handled before, by their key, and remembers the latest size of them. A message is
// remembered only after what is wrapped returned nil or Skip, so at least once stays true: a failed one runs again, and of two
// copies at the same time both run. key says no (false) for a message that is never a repeat. What is remembered is gone with the
// process: effects that must not happen twice need an idempotent handler. It panics when size is not more than 0.
func Dedup[K comparable](size int, key func(*consumer.Message) (K, bool)) consumer.Middleware {
	done, err := lru.New[K, struct{}](size)
	if err != nil {
		panic(fmt.Sprintf("middleware: Dedup of %d: %v", size, err))
	}
	return func(next consumer.Handler) consumer.Handler {
		return func(ctx context.Context, m *consumer.Message) error {
			k, ok := key(m)
			if !ok {
				return next(ctx, m)
			}
			if _, seen := done.Get(k); seen {
				return consumer.Skip("duplicate")
			}
			err := next(ctx, m)
			if err == nil || consumer.IsSkip(err) {
				done.Add(k, struct{}{})
			}
			return err
		}
	}
}

// A Position is where a message lies in its broker.
type Position struct {
	topic     string
	partition int32
	offset    int64
	id        string
	nanos     int64 // a recreated topic or stream uses its offsets again
}

// ByPosition is a key for Dedup that finds redeliveries of the same message, for example after a lost ack. It does not find a
// message that was published twice, see ByHeader. A group whose offsets are set back on purpose while the process runs is handled
// again only beyond what Dedup remembers.
func ByPosition(m *consumer.Message) (Position, bool) {
	p := Position{strings.Clone(m.Topic), m.Partition, m.Offset, strings.Clone(m.ID()), m.Nanos}
	return p, m.Offset >= 0 || m.ID() != ""
}

// ByHeader returns a key for Dedup that finds messages with the same value of a header, on the same topic: an ID that the
// producer gave, such as Nats-Msg-Id or ce-id. Messages without it are never repeats.
func ByHeader(name string) func(*consumer.Message) ([2]string, bool) {
	return func(m *consumer.Message) ([2]string, bool) {
		v, ok := m.Headers.Get(name)
		return [2]string{strings.Clone(m.Topic), string(v)}, ok && len(v) > 0
	}
}
