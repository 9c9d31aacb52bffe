package kit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/kit"
)

// TestBell: rings before anybody looks are one, and none is lost while somebody works.
func TestBell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, looks := kit.NewBell(), 0
		b.Ring()
		b.Ring()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Serve(ctx, time.Second, func(context.Context) error {
				time.Sleep(time.Minute)
				looks++
				return nil
			})
		}()
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if looks != 1 {
			t.Errorf("%d looks for two rings at once", looks)
		}
		b.Ring()
		time.Sleep(30 * time.Second) // it works
		b.Ring()
		time.Sleep(time.Hour)
		synctest.Wait()
		if looks != 3 {
			t.Errorf("%d looks, want 3: one rang while somebody worked", looks)
		}
		stop()
		<-done
	})
}

// TestBellTriesAgain: work that fails is done again without a ring, with pauses, and no more once ctx has ended.
func TestBellTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, tries, began := kit.NewBell(), 0, time.Now()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Serve(ctx, time.Second, func(context.Context) error {
				if tries++; tries%3 > 0 {
					return errAway
				}
				return nil
			})
		}()
		b.Ring()
		time.Sleep(time.Hour)
		synctest.Wait()
		if tries != 3 {
			t.Errorf("%d tries until it held, want 3", tries)
		}
		b.Ring()
		time.Sleep(1500 * time.Millisecond)
		stop()
		<-done
		if took := time.Since(began); tries != 5 || took != time.Hour+1500*time.Millisecond {
			t.Errorf("%d tries, and it ended after %v", tries, took)
		}
	})
}

// A goroutine that sends what others have queued.
func ExampleBell() {
	queued, sent := kit.NewBell(), make(chan string)
	ctx, stop := context.WithCancel(context.Background())
	tries := 0
	go queued.Serve(ctx, time.Millisecond, func(context.Context) error {
		if tries++; tries < 3 {
			return errors.New("connection refused")
		}
		sent <- fmt.Sprintf("sent, by try %d", tries)
		return nil
	})
	queued.Ring()
	fmt.Println(<-sent)
	stop()
	// Output: sent, by try 3
}
