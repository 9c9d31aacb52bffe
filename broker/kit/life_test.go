package kit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

var good = broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(broker.Event) {}}

func TestBegin(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(l *kit.Life)
		o      broker.Options
		want   string
		is     error
	}{
		"as it should be": {o: good},
		"no options":      {want: "x: Options.Budget is {Messages:0 Bytes:0}: both must be positive\nx: Options.Observe is nil"},
		"twice":           {before: func(l *kit.Life) { _ = l.Begin(good) }, o: good, want: "x: opening: broker: opened before"},
		"after bad ones": {before: func(l *kit.Life) { _ = l.Begin(broker.Options{}) }, o: good,
			want: "x: opening: broker: opened before"},
		"after a failure": {before: func(l *kit.Life) { _ = l.Begin(good); _ = l.Fail(errAway) }, o: good,
			want: "x: opening: broker: opened before"},
		"after Stop": {before: (*kit.Life).Stop, o: good, want: "x: opening: ", is: broker.ErrClosed},
		"after Close": {before: func(l *kit.Life) { _ = l.Close(nil, func() {}) }, o: good,
			want: "x: opening: ", is: broker.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			l := kit.NewLife("x")
			if tc.before != nil {
				tc.before(l)
			}
			err := l.Begin(tc.o)
			if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) || tc.is != nil &&
				!errors.Is(err, tc.is) {
				t.Errorf("Begin: %v", err)
			}
			if err == nil && !l.Opening() {
				t.Error("it has begun, and is not opening")
			}
		})
	}
	if err := kit.NewLife("x").Begin(good, nil, errAway); !errors.Is(err, errAway) {
		t.Errorf("Begin with a finding of the adapter's: %v", err)
	}
	if err := kit.NewLife("x").Begin(good, nil, nil); err != nil {
		t.Errorf("Begin without findings: %v", err)
	}
	if err := kit.NewLife("x").Fail(errAway); err.Error() != "x: opening: connection refused" || !errors.Is(err, errAway) {
		t.Errorf("Fail: %v", err)
	}
}

// TestClose: shut, then Context ends, then all goroutines, then last; once, and whoever closes beside it waits for that.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := kit.NewLife("x")
		_ = l.Begin(good)
		var mu sync.Mutex
		var got []string
		note := func(s string) { mu.Lock(); got = append(got, s); mu.Unlock() }
		if err := l.Launch(func(run func(func())) {
			run(func() { <-l.Context().Done(); note("launched ended") })
		}); err != nil {
			t.Fatal(err)
		}
		l.Go(func() { <-l.Context().Done(); time.Sleep(time.Second); note("goroutine ended") })
		shut := func() error {
			time.Sleep(time.Second)
			note("shut")
			return errAway
		}
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() {
				if err := l.Close(shut, func() { note("last") }); !errors.Is(err, errAway) {
					t.Errorf("Close: %v", err)
				}
				note("closed")
			})
		}
		closing.Wait()
		if s := strings.Join(got, ", "); s != "shut, launched ended, goroutine ended, last, closed, closed, closed" {
			t.Error(s)
		}
		l.Go(func() { t.Error("a goroutine starts after Close") })
		synctest.Wait()
	})
}

// TestCloseBeforeLaunch: Close overtakes Open. Nothing is started, and nothing is shut.
func TestCloseBeforeLaunch(t *testing.T) {
	l := kit.NewLife("x")
	_ = l.Begin(good)
	if err := l.Close(func() error { return errAway }, func() {}); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := l.Launch(func(func(func())) { t.Error("launched after Close") }); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("Launch after Close: %v", err)
	}
	if !errors.Is(l.Context().Err(), context.Canceled) {
		t.Error("the context goes on after Close")
	}
}
