package membroker_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// TestSlowExchange proves that a source which waits for the broker's answer when its lease runs out knows then that it has:
// by the time that another process has the messages, they are lost here.
func TestSlowExchange(t *testing.T) {
	for _, what := range []struct {
		name string
		slow func(t *testing.T, b *membroker.Broker, s *consumer, ms []broker.Message) // lets an exchange take longer than the lease
	}{
		{"heartbeat", func(_ *testing.T, b *membroker.Broker, _ *consumer, _ []broker.Message) {
			b.Delay(3 * time.Second)
			time.Sleep(time.Second / 2) // the next heartbeat is under way
		}},
		{"settle", func(t *testing.T, b *membroker.Broker, s *consumer, ms []broker.Message) {
			b.Delay(3 * time.Second)
			if err := s.ack(ms[1]); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second / 10)
		}},
		{"release", func(t *testing.T, b *membroker.Broker, s *consumer, ms []broker.Message) {
			if err := b.Revoke("group", "orders", 1); err != nil {
				t.Skip(err) // leased
			}
			<-ms[1].Claim.Revoking()
			b.Delay(3 * time.Second)
			if err := s.ack(ms[1]); err != nil {
				t.Error(err)
			}
			<-ms[1].Claim.Ended()
			synctest.Wait() // its release, which comes next, is under way
		}},
	} {
		t.Run(what.name, func(t *testing.T) {
			both(t, func(t *testing.T, c membroker.Config) {
				c.Topics = map[string]int{"orders": 2}
				b := membroker.New(c)
				for p := range 2 {
					if err := b.ProduceTo(p, broker.Outgoing{Topic: "orders"}); err != nil {
						t.Fatal(err)
					}
				}
				s := open(t, b, membroker.SourceConfig{}, 10)
				ms := s.receive(2)
				if ms[0].Partition > ms[1].Partition {
					ms[0], ms[1] = ms[1], ms[0]
				}
				what.slow(t, b, s, ms)
				b.Delay(0) // for the other one; what is under way takes its time
				other := open(t, b, membroker.SourceConfig{}, 10)
				for {
					if m := other.receive(1)[0]; m.Partition == ms[0].Partition && m.Offset == ms[0].Offset {
						break
					}
				}
				synctest.Wait()
				if err := s.ack(ms[0]); !errors.Is(err, broker.ErrLost) {
					t.Errorf("another process has the message, and Ack says %v", err)
				}
				if c.Leased {
					return
				}
				select {
				case <-ms[0].Claim.Ended():
				default:
					t.Error("another process has the partition, and the claim has not ended")
				}
				if n := len(s.told(broker.Ended)); n == 0 {
					t.Error("its end was not told")
				}
			})
		})
	}
}

// TestSlowExchanges proves that a source on which each exchange takes longer than its lease has its messages settled when
// that is over.
func TestSlowExchanges(t *testing.T) {
	both(t, func(t *testing.T, c membroker.Config) {
		b := membroker.New(c)
		produce(t, b, "orders", 20)
		s := open(t, b, membroker.SourceConfig{}, 5)
		_ = s.ack(s.receive(5)...)
		b.Delay(5 * time.Second / 2)
		time.Sleep(10 * time.Second)
		if downs := s.told(broker.Down); len(downs) == 0 {
			t.Error("nobody was told that no answer came for longer than the lease")
		}
		b.Delay(0)
		for b.Unsettled("group") > 0 {
			_ = s.ack(s.receive(1)...)
			time.Sleep(100 * time.Millisecond) // it is sent
		}
	})
}

// Settles are to be sent while a heartbeat waits for its answer, until the lease has run out. They are not waited for before
// that is noticed: whoever has the messages next does not wait either. Which of the two is looked at first is chance, so there
// are many.
func TestSettlesBehindALateHeartbeat(t *testing.T) {
	both(t, func(t *testing.T, c membroker.Config) {
		for range 20 {
			b := membroker.New(c)
			produce(t, b, "orders", 2)
			s := open(t, b, membroker.SourceConfig{CommitInterval: c.Lease / 3}, 10) // as often as a heartbeat
			ms := s.receive(2)
			if err := s.ack(ms[0]); err != nil {
				t.Fatal(err)
			}
			b.Delay(3 * c.Lease)
			time.Sleep(c.Lease + time.Millisecond)
			if err := s.ack(ms[1]); !errors.Is(err, broker.ErrLost) {
				t.Fatalf("the lease has run out, and Ack says %v", err)
			}
			b.Delay(0)
		}
	})
}
