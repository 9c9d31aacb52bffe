package redisbroker

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/longshoremq/longshore/broker"
)

// TestRefusedForNow: a server that answers and lets nobody read, as a replica after a failover, or one that cannot save, is told
// of by Down until that is over.
func TestRefusedForNow(t *testing.T) {
	s, err := miniredis.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	src, err := NewSource(Config{Redis: &redis.Options{Addr: s.Addr()}, Group: "group", Topics: []string{"in"}, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan broker.Event, 100)
	o := broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: func(e broker.Event) { events <- e }}
	if _, err := src.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	received := make(chan error, 1)
	go func() {
		_, err := src.Receive(make([]broker.Message, 1))
		received <- err
	}()
	t.Cleanup(func() {
		s.SetError("")
		_ = src.Close(context.Background())
		<-received
	})
	await := func(kind broker.Kind) {
		t.Helper()
		end := time.After(20 * time.Second)
		for {
			select {
			case e := <-events:
				if e.Kind == kind {
					return
				}
			case <-end:
				t.Fatalf("nobody was told that it is %v", kind)
			}
		}
	}
	await(broker.Up)
	s.SetError("READONLY You can't write against a read only replica.")
	await(broker.Down)
	s.SetError("")
	await(broker.Up)
	if _, err := s.XAdd("in", "*", []string{fieldValue, "text"}); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err != nil {
		t.Error(err)
	}
	received <- nil
}
