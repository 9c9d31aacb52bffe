package middleware

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/hashicorp/golang-lru/v2"
	"github.com/longshoremq/longshore/consumer"
)

// Dedup skips messages that this process has handled before, by their key, and remembers the latest size of them. A message is
// remembered only after what is wrapped returned nil or Skip, so at least once stays true: a failed one runs again, and of two
// copies at the same time both run. key says no (false) for a message that is never a repeat. What is remembered is gone with the
// process: effects that must not happen twice need an idempotent handler. It panics when size is not more than 0.
//
// What emits (consumer.Emit) is not done when it returns nil, for its outputs are stored afterwards, or not. Where they go with
// the ack, as with transactions, the same message is called again when it comes again, and others with its key are skipped.
// Where they are published before the ack, nothing is remembered of it.
func Dedup[K comparable](size int, key func(*consumer.Message) (K, bool)) consumer.Middleware {
	done, err := lru.New[K, handled](size)
	if err != nil {
		panic(fmt.Sprintf("middleware: Dedup of %d: %v", size, err))
	}
	return func(next consumer.Handler) consumer.Handler {
		return func(ctx context.Context, m *consumer.Message) error {
			k, ok := key(m)
			if !ok {
				return next(ctx, m)
			}
			if was, seen := done.Get(k); seen {
				if !was.comesAgain(m) {
					return consumer.Skip("duplicate")
				}
				done.Remove(k) // it may fail this time
			}
			err := next(ctx, m)
			if now, ok := handledBy(ctx, m, err); ok {
				done.Add(k, now)
			}
			return err
		}
	}
}

// handled is a message that Dedup remembers.
type handled struct {
	emitted bool     // with its ack
	at      Position // of who emitted
}

// comesAgain says whether m is the one that was handled and has emitted: its ack, and what was to be stored with it, are void.
func (h handled) comesAgain(m *consumer.Message) bool {
	if !h.emitted {
		return false
	}
	at, _ := ByPosition(m)
	return at == h.at
}

// handledBy is what to remember of m, whose call has returned err. Not ok: nothing, for it may have to be called again.
func handledBy(ctx context.Context, m *consumer.Message, err error) (h handled, ok bool) {
	if err != nil {
		return h, consumer.IsSkip(err) // which drops what was emitted
	}
	some, withAck := consumer.HasEmitted(ctx)
	switch {
	case !some:
		return h, true
	case !withAck:
		return h, false
	}
	h.emitted = true
	h.at, _ = ByPosition(m)
	return h, true
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

// maxPlain is the longest value that ByHeader keeps as it is.
const maxPlain = 64

// ByHeader returns a key for Dedup that finds messages with the same value of a header, on the same topic: an ID that the
// producer gave, such as Nats-Msg-Id or ce-id. Messages without it are never repeats. Of a value of more than 64 bytes its
// SHA-256 is remembered.
func ByHeader(name string) func(*consumer.Message) ([2]string, bool) {
	return func(m *consumer.Message) ([2]string, bool) {
		v, ok := m.Headers.Get(name)
		if len(v) > maxPlain {
			// Longer than what is kept as it is, so that it is no other value's.
			return [2]string{strings.Clone(m.Topic), fmt.Sprintf("sha256:%x", sha256.Sum256(v))}, ok
		}
		return [2]string{strings.Clone(m.Topic), string(v)}, ok && len(v) > 0
	}
}
