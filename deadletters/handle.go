package deadletters

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// handle runs the handler on a batch, Workers at a time. It does not end with ctx.
func (r *replay) handle(ctx context.Context, batch []pendingReplay) []error {
	ctx = context.WithoutCancel(ctx)
	errs := make([]error, len(batch))
	free := make(chan struct{}, r.o.Workers)
	var wg sync.WaitGroup
	for i, x := range batch {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			errs[i] = guard(func() error { return r.o.Handle(ctx, asMessage(x.letter, x.out)) })
		})
	}
	wg.Wait()
	return errs
}

// guard turns a panic, or runtime.Goexit, into an error.
func guard(f func() error) (err error) {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		err = errors.New("the handler called runtime.Goexit")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		err = f()
	}()
	<-returned
	return err
}

func (r *replay) handled(ctx context.Context, batch []pendingReplay, errs []error) error {
	var done, undone, twice []pendingReplay
	for i, err := range errs {
		if err == nil {
			done = append(done, batch[i])
			if batch[i].late {
				twice = append(twice, batch[i])
				r.sum.twice(batch[i].letter.Place)
			}
			continue
		}
		undone = append(undone, batch[i])
		r.sum.refuse(batch[i].letter.Place, err)
	}
	if err := errors.Join(r.write(ctx, stepDone, done, twice...), r.write(ctx, stepUndone, undone)); err != nil {
		return err
	}
	r.last = done
	r.sum.Replayed += int64(len(done))
	r.sum.Failed += int64(len(undone))
	r.progress(len(batch))
	return nil
}
