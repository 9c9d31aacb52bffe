package redisbroker

import (
	"reflect"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// TestAckedComesAgain: a message comes again while its ack is on its way. What is said of it is what was taken to be said.
func TestAckedComesAgain(t *testing.T) {
	s := newStock(Config{Topics: []string{"in"}, Lease: time.Minute}, kit.NewEventQueue())
	s.gate.SetBudget(broker.Budget{Messages: 10, Bytes: 1 << 20})
	s.begin(s.streams[0])
	cl, dst := s.streams[0].claim, make([]broker.Message, 1)
	come := func(count int32) int {
		return s.arrived(cl, []delivery{{broker.Message{Offset: -1, Name: "1-0"}, count}}, time.Now(), dst)
	}
	if n := come(1); n != 1 {
		t.Fatalf("%d were handed out", n)
	}
	if err := s.ack(cl, []uint64{dst[0].Token}); err != nil {
		t.Fatal(err)
	}
	_, settles := s.unsent()
	args := settleArgs(settles)
	again := make(chan int)
	go func() { again <- come(2) }()
	if want := []any{"1-0", int32(1), int32(-1)}; !reflect.DeepEqual(args, want) || len(settles) != 1 {
		t.Errorf("of %d settles is said %v, want %v", len(settles), args, want)
	}
	if n := <-again; n != 0 {
		t.Errorf("%d were handed out that were acked", n)
	}
}
