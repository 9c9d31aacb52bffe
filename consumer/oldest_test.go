package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestOldestFindsAMessageWhereverItLies: in a handler, parked, on its way to dead letters that are down, queued behind another.
func TestOldestFindsAMessageWhereverItLies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(kinds["partitioned"])
		p := &publisher{Publisher: b.Publisher()}
		p.set(errors.New("no route"))
		r := start(t, b, consumer.Config{
			Pool:       consumer.Pool{Min: 1, Max: 1},
			Retry:      consumer.Retry{MaxAttempts: 2, Backoff: consumer.Backoff{Initial: time.Minute, Max: time.Minute}},
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
			Handler: func(context.Context, *consumer.Message) error {
				time.Sleep(10 * time.Second)
				return errors.New("always")
			},
		})
		check := func(what string, want time.Time) {
			t.Helper()
			synctest.Wait()
			if at := r.Oldest(); !at.Equal(want) {
				t.Errorf("%s: the oldest is of %v, want %v", what, at, want)
			}
		}
		time.Sleep(time.Second)
		check("nothing was received", time.Time{})
		first := time.Now()
		produce(t, b, 1)
		time.Sleep(time.Second)
		check("in its handler", first)
		time.Sleep(15 * time.Second)
		check("parked", first)
		time.Sleep(time.Minute)
		check("dead letters are down", first)
		second := time.Now()
		produce(t, b, 1)
		time.Sleep(time.Second)
		produce(t, b, 1)
		p.set(nil)
		time.Sleep(15 * time.Second)
		check("its dead letter is stored, the second is parked", second)
		time.Sleep(2 * time.Minute)
		check("all is settled", time.Time{})
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}
