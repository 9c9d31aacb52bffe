package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/internal/joined"
)

// A BatchHandler handles several messages of one claim (on Kafka: of one partition) at once, in the order in which they came. nil
// acks all of them; an error retries all, or decides as a Handler's would; a *BatchError decides for each, and what is joined
// with it, such as the error of closing a file, is said of all. ctx is as a Handler's, and Timeout is for the whole call. ms may
// be kept, and each message is left as it is, as by a Handler.
type BatchHandler func(ctx context.Context, ms []*Message) error

// A BatchMiddleware wraps a BatchHandler. It sees the call only: what becomes of the messages is decided by the engine
// afterwards.
type BatchMiddleware func(BatchHandler) BatchHandler

// ChainBatch is Chain for BatchMiddleware: the first is the outermost.
func ChainBatch(ms ...BatchMiddleware) BatchMiddleware {
	return func(h BatchHandler) BatchHandler {
		if h == nil {
			return nil
		}
		for i := len(ms) - 1; i >= 0; i-- {
			h = ms[i](h)
		}
		return h
	}
}

// AroundBatch makes a BatchMiddleware of a Middleware that looks at calls, and not at messages: a timeout, a circuit breaker, a
// recover. The call of the batch handler is one call for it, with the batch's first message, and the batch's error, which is nil
// where no message of it failed. A Middleware that decides by the message (a deduplication, a limit for each key), or that
// defers, is not for it: the first message would decide for all.
func AroundBatch(m Middleware) BatchMiddleware {
	return func(next BatchHandler) BatchHandler {
		return func(ctx context.Context, ms []*Message) error {
			if len(ms) == 0 {
				return next(ctx, ms)
			}
			return m(func(ctx context.Context, _ *Message) error {
				err := next(ctx, ms)
				if errors.Join(BatchErrors(err, len(ms))...) == nil {
					return nil
				}
				return err
			})(ctx, ms[0])
		}
	}
}

// A Batch hands messages over in batches. A batch is handed over when it has Size messages or Bytes, or when Linger has passed
// since its first message came. A message that failed waits its backoff alone, and then for a batch again. Its last attempt,
// before it becomes a dead letter, is a batch of its own, so that a message whose handler panics, or has one error for all, takes
// none of the others with it. Where Retry.GiveUpAfter ends it, that is when this time is over. With a Priority, a batch has
// messages of one level. With an order, it has at most one message of a lane, unless it is ByKey.
type Batch struct {
	// Handler handles each batch, instead of Config.Handler. Required.
	Handler BatchHandler `yaml:"-"`
	// Size is the most messages in a batch; at most half of each source's budget, and 65,536. Defaults to 100.
	Size int `yaml:"size" want:"1..65536"`
	// Bytes is the size of keys and values at which a batch is complete; one message may go over. Defaults to 1 MiB.
	Bytes int `yaml:"bytes" want:"1.."`
	// ByKey gives each batch the messages of one key only; those without a key have batches of their own. Where there are many keys,
	// it is mostly Linger that completes them. With an order, a batch is consecutive messages of one lane, and the first of them
	// that fails ends it: it is retried, and those behind it are handled again after it, one by one, whatever was said of them; they
	// have used up no attempt. Defaults to false.
	ByKey bool `yaml:"by_key"`
	// Linger is how long a message waits for others at most. Longer means larger batches where little comes. Defaults to 100 ms.
	Linger time.Duration `yaml:"linger" want:">0"`
}

// A BatchError says what became of each message of a batch.
type BatchError struct {
	// Errs has an entry for each message, as a Handler would return it; nil acks it. With another number of entries all messages
	// fail, and are tried again, whatever the entries are.
	Errs []error
}

// errNilBatch: a nil pointer is an error like any other, and says of no message what became of it.
var errNilBatch = errors.New("the batch handler returned a nil *BatchError for its error, so all have failed: where none has, " +
	"return nil itself")

// Error joins those of the messages.
func (e *BatchError) Error() string {
	if e == nil {
		return errNilBatch.Error()
	}
	if err := errors.Join(e.Errs...); err != nil {
		return err.Error()
	}
	return "no message of the batch failed"
}

// Unwrap returns the messages' errors.
func (e *BatchError) Unwrap() []error {
	if e == nil {
		return nil
	}
	return e.Errs
}

// defaults of Batch.
const (
	defaultBatchSize   = 100
	defaultBatchBytes  = 1 << 20
	defaultBatchLinger = 100 * time.Millisecond
)

func (b *Batch) withDefaults() *Batch {
	if b == nil {
		return nil
	}
	d := *b
	if d.Size == 0 {
		d.Size = defaultBatchSize
	}
	if d.Bytes == 0 {
		d.Bytes = defaultBatchBytes
	}
	if d.Linger == 0 {
		d.Linger = defaultBatchLinger
	}
	return &d
}

// chunks is how many messages are asked for at once. Where batches are of whatever comes, it is whole ones, which need not be
// copied, and whole is how many one has; else 0.
func (c Config) chunks() (n, whole int) {
	if c.Batch == nil || !c.gathersAll() {
		return c.Chunk, 0
	}
	size := c.Batch.Size
	return max(size, c.Chunk/size*size), size
}

// gathersAll says whether batches are of whatever comes.
func (c *Config) gathersAll() bool { return !c.Batch.ByKey && !c.ordered() && c.Priority == nil }

// batchSize is how many messages a worker takes at once; 0: not in batches.
func (c Config) batchSize() int {
	if c.Batch == nil {
		return 0
	}
	return c.Batch.Size
}

// BatchErrors is what a BatchHandler's err says of each of its n messages, for middleware; nil: it is acked. What stands beside a
// BatchError, by errors.Join for example, is said of all of them: of those, too, that the BatchError acks. The result may be the
// handler's own: it is not to be changed.
func BatchErrors(err error, n int) []error {
	told, beside := joined.Apart[*BatchError](err, isPanic)
	errs := make([]error, n)
	for _, each := range told {
		switch {
		case each == nil:
			beside = append(beside, errNilBatch)
		case len(each.Errs) != n: // whose errors these are is not known, so that one which is a Skip would ack all
			beside = append(beside, fmt.Errorf("the batch handler told of %d messages, the batch has %d, so all have failed; it said: %v",
				len(each.Errs), n, each))
		case len(told)+len(beside) == 1:
			return each.Errs
		default:
			for i, e := range each.Errs {
				errs[i] = joined.Both(errs[i], e)
			}
		}
	}
	for _, all := range beside {
		for i := range errs {
			errs[i] = joined.Both(errs[i], all)
		}
	}
	return errs
}

// isPanic: a panic is of all messages, and what it wraps was no result.
func isPanic(err error) bool {
	_, is := err.(*PanicError) //nolint:errorlint // of what wraps one this is asked when that is taken to pieces
	return is
}
