package program

import (
	"context"
	"os"
	"sync/atomic"
	"time"
)

// lastWords are what a command has to say when a second signal stops the process at once.
type lastWords struct {
	say atomic.Pointer[func(os.Signal)]
}

type lastWordsKey struct{}

// onForcedStop sets what is done at a forced stop; it must be quick. ctx is the command's.
func onForcedStop(ctx context.Context, do func(os.Signal)) {
	if w, ok := ctx.Value(lastWordsKey{}).(*lastWords); ok {
		w.say.Store(&do)
	}
}

// speak says it, and waits for it no longer than a second: the log may be a pipe that nobody reads.
func (w *lastWords) speak(s os.Signal) {
	do := w.say.Load()
	if do == nil {
		return
	}
	said := make(chan struct{})
	go func() {
		defer close(said)
		(*do)(s)
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
}
