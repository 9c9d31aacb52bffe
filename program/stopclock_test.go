package program

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/program/internal/config"
)

// TestStopFitsIntoKillGrace: what the admin server waits for at the end of a stop gets what kill_grace leaves, and no more.
func TestStopFitsIntoKillGrace(t *testing.T) {
	closed := errors.New("closed")
	for _, c := range []struct {
		grace, drained, ends time.Duration
		exports              bool
		took                 time.Duration
		want                 error
	}{
		{0, 30 * time.Second, 2 * time.Second, false, 0, nil},
		{0, 29 * time.Second, 2 * time.Second, false, time.Second, nil},
		{0, 20 * time.Second, 2 * time.Second, false, 2 * time.Second, closed},
		{0, 27 * time.Second, 2 * time.Second, true, time.Second, nil},
		{6 * time.Second, 6 * time.Second, 2 * time.Second, false, 0, nil},
		{0, -1, 40 * time.Second, false, 40 * time.Second, closed}, // no stop: a consumer failed
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			s := newStopClock(ctx, &config.Document{File: config.File{KillGrace: c.grace}, Exports: c.exports})
			if c.drained >= 0 {
				stop()
				synctest.Wait()
				time.Sleep(c.drained)
			}
			ended := make(chan error, 1)
			time.AfterFunc(c.ends, func() { ended <- closed })
			began := time.Now()
			if err := s.wait(ended); !errors.Is(err, c.want) || time.Since(began) != c.took {
				t.Errorf("%+v: %v after %v", c, err, time.Since(began))
			}
		})
	}
}
