package membroker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// A partition is bounced whose claim has ended here and is not released at the broker yet: its owner begins anew.
func TestBounceOfAnEndedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: orders})
		s := open(t, b, membroker.SourceConfig{}, 10)
		claim := s.told(broker.Assigned)[0].Claim
		b.Delay(20 * time.Millisecond)
		if err := b.Revoke("group", "orders", 0); err != nil {
			t.Fatal(err)
		}
		<-claim.Ended()
		if err := b.Bounce("group", "orders", 0); err != nil { // it is on its way to say so
			t.Fatal(err)
		}
		b.Delay(0)
		produce(t, b, "orders", 5)
		got := make(chan []broker.Message)
		go func() { got <- s.receive(5) }()
		select {
		case ms := <-got:
			if err := s.ack(ms...); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			if n := b.Unsettled("group"); n != 0 {
				t.Errorf("%d are unsettled", n)
			}
		case <-time.After(time.Minute):
			t.Fatal("nobody reads the partition")
		}
	})
}
