package kit_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// TestPublishing: Close waits for what is under way, then shuts, once; nothing begins after it.
func TestPublishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := kit.NewPublishing("x"), time.Now()
		for i := range 3 {
			go func() {
				_ = p.Do(t.Context(), func(ctx context.Context) error {
					time.Sleep(time.Duration(i) * time.Second)
					if ctx.Err() != nil {
						t.Error("it was told to give up")
					}
					return nil
				})
			}()
		}
		synctest.Wait()
		shuts := 0
		closing := func() error { return p.Close(t.Context(), func() error { shuts++; return errAway }) }
		again := make(chan error)
		go func() { again <- closing() }()
		if err := closing(); err != errAway || time.Since(began) != 2*time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(began))
		}
		if err := <-again; err != errAway || shuts != 1 {
			t.Errorf("Close beside it: %v, and shut was called %d times", err, shuts)
		}
		if err := p.Do(t.Context(), nil); !errors.Is(err, broker.ErrClosed) {
			t.Errorf("Publish after Close: %v", err)
		}
	})
}

// TestPublishingGivesUp: a Close whose ctx ends does not wait, and tells whoever publishes; the last of them shuts.
func TestPublishingGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.NewPublishing("x")
		told := make(chan error, 1)
		go func() {
			told <- p.Do(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var shut atomic.Bool
		err := p.Close(ctx, func() error { shut.Store(true); return nil })
		if !errors.Is(err, context.DeadlineExceeded) || shut.Load() {
			t.Errorf("Close: %v, and it was shut: %v", err, shut.Load())
		}
		if err := <-told; err != broker.ErrClosed {
			t.Errorf("Publish: %v", err)
		}
		if err := p.Close(t.Context(), nil); err != nil || !shut.Load() {
			t.Errorf("Close again: %v, and it was shut: %v", err, shut.Load())
		}
	})
}

// TestPublishingEnds: a Publish ends with its own ctx.
func TestPublishingEnds(t *testing.T) {
	p := kit.NewPublishing("x")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errAway)
	if err := p.Do(ctx, func(ctx context.Context) error { return context.Cause(ctx) }); err != errAway {
		t.Errorf("Publish: %v", err)
	}
	if err := p.Close(ctx, func() error { return nil }); err != nil {
		t.Errorf("Close, with a ctx that has ended and nothing to wait for: %v", err)
	}
}

// The two methods of a publisher.
func ExamplePublishing() {
	life := kit.NewPublishing("mail")
	publish := func(ctx context.Context, ms []broker.Outgoing) error {
		return life.Do(ctx, func(context.Context) error { fmt.Println(len(ms), "stored"); return nil })
	}
	closing := func(ctx context.Context) error {
		return life.Close(ctx, func() error { fmt.Println("disconnected"); return nil })
	}
	ctx := context.Background()
	_ = publish(ctx, make([]broker.Outgoing, 3))
	_ = closing(ctx)
	fmt.Println(publish(ctx, nil))
	// Output:
	// 3 stored
	// disconnected
	// mail: publishing: broker: closed
}
