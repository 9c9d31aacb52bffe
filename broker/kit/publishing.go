package kit

import (
	"context"
	"fmt"
	"sync"

	"github.com/longshoremq/longshore/broker"
)

// A Publishing is the life of a publisher: calls of Publish beside each other, then Close; see broker.Publisher. It is safe for
// concurrent use.
type Publishing struct {
	name string
	ctx  context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	under  int // calls under way
	closed bool
	shut   func() error
	done   chan struct{} // closed when shut has returned
	err    error         // shut's; read when done is closed
}

// NewPublishing begins one. The adapter's name is what errors begin with.
func NewPublishing(name string) *Publishing {
	p := &Publishing{name: name, done: make(chan struct{})}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// Do is one Publish. It returns ErrClosed after Close, and otherwise what publish does, whose ctx ends as the given one does, and
// with ErrClosed as its cause where a Close did not want to wait any longer.
func (p *Publishing) Do(ctx context.Context, publish func(ctx context.Context) error) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("%s: publishing: %w", p.name, broker.ErrClosed)
	}
	p.under++
	p.mu.Unlock()
	defer p.leave()
	ctx, end := context.WithCancelCause(ctx)
	defer end(context.Canceled)
	defer context.AfterFunc(p.ctx, func() { end(broker.ErrClosed) })()
	return publish(ctx)
}

func (p *Publishing) leave() {
	p.mu.Lock()
	p.under--
	last := p.closed && p.under == 0
	p.mu.Unlock()
	if last {
		p.finish()
	}
}

// Close lets no Publish begin any more and waits for those under way; when the last one has returned, shut is called, and its
// error is Close's. Where ctx ends before that, Close returns its error, and the publishes under way are told to give up. Any
// number of times: shut is the first call's, and is called once.
func (p *Publishing) Close(ctx context.Context, shut func() error) error {
	p.mu.Lock()
	first := !p.closed
	if first {
		p.closed, p.shut = true, shut
	}
	idle := p.under == 0
	p.mu.Unlock()
	if first && idle {
		p.finish()
	}
	select {
	case <-p.done:
		return p.err
	default:
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.end()
		return fmt.Errorf("%s: closing the publisher: publishes are still under way: %w", p.name, context.Cause(ctx))
	}
}

// finish is called once: by the last publish under way, or where there is none by the first Close.
func (p *Publishing) finish() {
	p.end()
	p.err = p.shut()
	close(p.done)
}
