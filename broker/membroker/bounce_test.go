package membroker_test

import (
	"slices"
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

// A partition is bounced while the broker is away, and so are acks of a claim that has ended meanwhile. They do not hold, and
// that is told before the messages come again under the next claim: whoever keeps count would else see a handled message again
// without a reason.
func TestBounceTellsWhatIsUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: orders})
		s := open(t, b, membroker.SourceConfig{CommitInterval: time.Hour}, 10)
		produce(t, b, "orders", 5)
		ms := s.receive(5)
		if err := b.Revoke("group", "orders", 0); err != nil {
			t.Fatal(err)
		}
		<-ms[0].Claim.Revoking()
		b.Down()
		if err := s.ack(ms...); err != nil {
			t.Fatal(err)
		}
		<-ms[0].Claim.Ended()
		if err := b.Bounce("group", "orders", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // its heartbeat fails, as the release did: both are tried again at once
		b.Up()
		s.receive(5)
		time.Sleep(time.Second)
		if told := s.told(broker.Unconfirmed); len(told) != 1 || told[0].N != 5 || told[0].Claim != ms[0].Claim {
			t.Errorf("5 acks do not hold, their messages came again, and what was told is %v", told)
		}
		if order := s.kinds(broker.Assigned, broker.Unconfirmed); !slices.Equal(order,
			[]broker.Kind{broker.Assigned, broker.Unconfirmed, broker.Assigned}) {
			t.Errorf("told in the order %v", order)
		}
	})
}
