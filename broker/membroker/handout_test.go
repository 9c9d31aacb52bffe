package membroker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// An unfinished message at the head stops intake when the window is full, and the source says so once.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: orders})
		produce(t, b, "orders", 30)
		s := open(t, b, membroker.SourceConfig{Window: 10}, 100)
		ms := s.receive(10)
		if w := s.Window(ms[0].Claim); w != 1 {
			t.Errorf("the window is %v full, want 1", w)
		}
		if err := s.ack(ms[1:]...); err != nil {
			t.Error(err)
		}
		go func() {
			time.Sleep(time.Second)
			if err := s.ack(ms[0]); err != nil {
				t.Error(err)
			}
		}()
		begin := time.Now()
		ms = s.receive(10)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("intake went on after %v, want when the head was acked", took)
		}
		if es := s.told(broker.Stalled); len(es) != 1 || es[0].From != 0 || es[0].Claim != ms[0].Claim {
			t.Errorf("stalled events are %+v, want one from offset 0", es)
		}
		if err := s.ack(ms...); err != nil {
			t.Error(err)
		}
		if err := s.ack(s.receive(10)...); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if got := b.Committed("group", "orders", 0); got != 30 {
			t.Errorf("committed is %d, want 30", got)
		}
		if w := s.Window(ms[0].Claim); w != 0 {
			t.Errorf("the window is %v full, want 0", w)
		}
	})
}

// What was finished above the committed offset is committed with it: another process does not get it again.
func TestFinishedAboveTheCommittedOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: orders})
		produce(t, b, "orders", 10)
		s := open(t, b, membroker.SourceConfig{}, 10)
		ms := s.receive(10)
		for i, m := range ms {
			if i%2 == 1 {
				if err := s.ack(m); err != nil {
					t.Error(err)
				}
			}
		}
		if err := s.Nack(ms[0].Claim, []broker.Back{{Token: ms[0].Token, Runs: 4}}); err != nil {
			t.Error(err)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if got := b.Committed("group", "orders", 0); got != 0 {
			t.Errorf("committed is %d, want 0", got)
		}
		next := open(t, b, membroker.SourceConfig{}, 10)
		for i, m := range next.receive(5) {
			if m.Offset != int64(2*i) {
				t.Errorf("message %d has offset %d, want %d", i, m.Offset, 2*i)
			}
			if want := map[bool]int32{true: 4}[i == 0]; m.Runs != want {
				t.Errorf("offset %d says %d runs, want %d", m.Offset, m.Runs, want)
			}
		}
	})
}

// A member that joins takes its share of the partitions gently, and one that leaves hands its share back.
func TestMembersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 6}})
		first := open(t, b, membroker.SourceConfig{}, 10)
		second := open(t, b, membroker.SourceConfig{}, 10)
		third := open(t, b, membroker.SourceConfig{}, 10)
		synctest.Wait()
		for i, want := range []int{2, 2, 2} {
			c := []*consumer{first, second, third}[i]
			if got := len(c.told(broker.Assigned)) - len(c.told(broker.Ended)); got != want {
				t.Errorf("member %d has %d partitions, want %d", i, got, want)
			}
		}
		second.Kill()
		time.Sleep(25 * time.Second)
		if got := len(first.told(broker.Assigned)) - len(first.told(broker.Ended)); got != 3 {
			t.Errorf("after a member's death another has %d partitions, want 3", got)
		}
	})
}

// A source says at once that a claim is not its own.
func TestForeignClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 2}})
		produce(t, b, "orders", 2)
		first, second := open(t, b, membroker.SourceConfig{}, 10), open(t, b, membroker.SourceConfig{}, 10)
		m := first.receive(1)[0]
		made, _ := broker.NewClaim("orders", 0, nil)
		for _, c := range []*broker.Claim{m.Claim, made} {
			if err := second.Ack(c, []uint64{m.Token}); err == nil || errors.Is(err, broker.ErrLost) {
				t.Errorf("Ack of a foreign claim: %v", err)
			}
			if err := second.Nack(c, []broker.Back{{Token: m.Token}}); err == nil || errors.Is(err, broker.ErrLost) {
				t.Errorf("Nack of a foreign claim: %v", err)
			}
		}
		second.Hold(made, time.Now())
		if second.Window(made) != 0 {
			t.Error("Window of a foreign claim is not 0")
		}
		if err := first.ack(m); err != nil {
			t.Error(err)
		}
	})
}

// MaxDeliveries needs a run of its own: other cases need messages that come more often.
func TestMaxDeliveries(t *testing.T) {
	c := membroker.Config{Leased: true, MaxDeliveries: 3, Topics: orders, Lease: time.Second}
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(c)
		produce(t, b, "orders", 1)
		s := open(t, b, membroker.SourceConfig{}, 10)
		for i := range 3 {
			m := s.receive(1)[0]
			if int(m.Attempt) != i+1 {
				t.Errorf("delivery %d says Attempt %d", i+1, m.Attempt)
			}
			if err := s.Nack(m.Claim, []broker.Back{{Token: m.Token, Runs: int32(i + 1)}}); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		produce(t, b, "orders", 1)
		if m := s.receive(1)[0]; m.Offset != 2 {
			t.Errorf("offset %d came, want the next message", m.Offset)
		}
		if got := b.Stats("group"); got.Dropped != 1 || got.Delivered != 4 || got.Members != 1 {
			t.Errorf("stats are %+v", got)
		}
	})
}

// A settle of many says of how many it came too late: those that were settled before are none.
func TestSomeCameTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Leased: true, Topics: orders, Lease: time.Second})
		c := open(t, b, membroker.SourceConfig{}, 10)
		produce(t, b, "orders", 5)
		ms := c.receive(5)
		var tokens []uint64
		for _, m := range ms {
			tokens = append(tokens, m.Token)
		}
		c.Cut(membroker.Both)
		time.Sleep(2 * time.Second)
		_ = c.Ack(ms[0].Claim, tokens[:2])
		err := c.Ack(ms[0].Claim, tokens)
		if lost := (*broker.LostError)(nil); !errors.As(err, &lost) || lost.N != 3 || !errors.Is(err, broker.ErrLost) {
			t.Errorf("Ack says %v, want that three of five were late", err)
		}
		c.Heal()
	})
}
