package kit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

var errRefused = errors.New("wrong password")

func TestRetry(t *testing.T) {
	for name, tc := range map[string]struct {
		answers []error // the last one again and again
		within  time.Duration
		want    string
		took    time.Duration
	}{
		"at once":       {[]error{nil}, time.Second, "<nil>", 0},
		"later":         {[]error{errAway, errAway, nil}, time.Second, "<nil>", 200 * time.Millisecond},
		"for good":      {[]error{errAway, errRefused, nil}, time.Second, "wrong password", 100 * time.Millisecond},
		"never":         {[]error{errAway}, time.Second, "context deadline exceeded (last try: connection refused)", time.Second},
		"ended before":  {[]error{errAway}, 0, "context deadline exceeded (last try: connection refused)", 0},
		"ended, and ok": {[]error{nil}, 0, "<nil>", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.within)
				defer cancel()
				began, n := time.Now(), 0
				err := kit.Retry(ctx, 100*time.Millisecond, func(context.Context) error {
					err := tc.answers[min(n, len(tc.answers)-1)]
					n++
					return err
				}, func(err error) bool { return err == errRefused })
				if fmt.Sprint(err) != tc.want || time.Since(began) != tc.took {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(began), tc.want, tc.took)
				}
			})
		})
	}
}

// TestWhile: Close ends an Open that waits, and so does the ctx that Open was called with.
func TestWhile(t *testing.T) {
	for _, closes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := kit.NewLife("x")
			_ = l.Begin(good)
			given, end := context.WithCancelCause(t.Context())
			ctx, cancel := l.While(given)
			defer cancel()
			want := errAway
			if closes {
				want = broker.ErrClosed
			}
			go func() {
				time.Sleep(time.Second)
				if closes {
					_ = l.Close(nil, func() {})
				} else {
					end(errAway)
				}
			}()
			err := kit.Retry(ctx, time.Minute, func(context.Context) error { return errRefused }, func(error) bool { return false })
			if !errors.Is(err, want) || !errors.Is(err, errRefused) {
				t.Errorf("Retry: %v, want %v", err, want)
			}
			_ = l.Close(nil, func() {})
		})
	}
}

// An Open that tries until the broker answers.
func ExampleRetry() {
	life, tries := kit.NewLife("x"), 0
	open := func(ctx context.Context) error {
		ctx, cancel := life.While(ctx)
		defer cancel()
		return kit.Retry(ctx, time.Millisecond, func(context.Context) error {
			if tries++; tries < 3 {
				return errors.New("connection refused")
			}
			return nil
		}, func(err error) bool { return errors.Is(err, broker.ErrRefused) })
	}
	fmt.Println(open(context.Background()), tries)
	// Output: <nil> 3
}
