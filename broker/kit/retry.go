package kit

import (
	"context"
	"fmt"
	"time"
)

// Retry calls try, with pauses, until it succeeds, final says of its error that another try would not change it, or ctx ends. It
// returns nil, try's error, or one that wraps the cause of ctx's end and try's last error. try is called once at least, also
// where ctx has ended before; it gets ctx. It blocks.
//
// It serves an Open that waits for a broker, with the ctx of Life.While, and the last commit of a Close.
func Retry(ctx context.Context, pause time.Duration, try func(ctx context.Context) error, final func(error) bool) error {
	t := time.NewTimer(pause)
	defer t.Stop()
	for {
		err := try(ctx)
		if err == nil || final(err) {
			return err
		}
		t.Reset(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (last try: %w)", context.Cause(ctx), err)
		}
	}
}
