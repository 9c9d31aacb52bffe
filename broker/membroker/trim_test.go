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

// Whose session ends before it hears of its partition tells nobody what that has lost: the next one does.
func TestGapOfAnOwnerThatNeverHeardOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1}, Lease: 2 * time.Second})
		first := open(t, b, membroker.SourceConfig{}, 10)
		claim := first.told(broker.Assigned)[0].Claim
		produce(t, b, "orders", 10)
		ms := first.receive(10)
		if err := first.ack(ms[8]); err != nil { // above what is gone then, and not handled again
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		second := open(t, b, membroker.SourceConfig{}, 10)
		second.Freeze()
		defer second.Thaw()
		if err := b.Trim("orders", claim.Partition, 5); err != nil {
			t.Fatal(err)
		}
		first.Kill()
		time.Sleep(10 * time.Second) // the second one gets it, and loses it
		third := open(t, b, membroker.SourceConfig{}, 10)
		time.Sleep(10 * time.Second)
		lost := int64(0)
		for _, e := range third.told(broker.Gap) {
			lost += e.N
		}
		if lost != 5 {
			t.Errorf("gaps of %d were told, want 5", lost)
		}
		got := third.receive(4)
		if len(got) != 4 || got[0].Offset != 5 || got[3].Offset != 9 {
			t.Errorf("got %d messages from %d, want those at 5, 6, 7 and 9", len(got), got[0].Offset)
		}
		if err := third.ack(got...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := b.Unsettled("group"); n != 0 {
			t.Errorf("%d are unsettled", n)
		}
	})
}

// Who has stopped gets a partition that has lost messages, gives it back, and closes before it could: the next one tells what
// that has lost, for the one that closed has told nobody.
func TestGapOfAnOwnerThatHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1}})
		first := open(t, b, membroker.SourceConfig{}, 10)
		claim := first.told(broker.Assigned)[0].Claim
		second := open(t, b, membroker.SourceConfig{}, 10)
		produce(t, b, "orders", 5)
		synctest.Wait()
		second.Stop()
		if err := b.Trim("orders", claim.Partition, 3); err != nil {
			t.Fatal(err)
		}
		b.Delay(50 * time.Millisecond)
		if err := b.Steal("group", "orders", claim.Partition); err != nil {
			t.Fatal(err)
		}
		time.Sleep(75 * time.Millisecond) // it has heard of it, and what gives it back is under way
		b.Down()
		closed := make(chan error, 1)
		go func() { closed <- second.Close(context.Background()) }()
		time.Sleep(time.Second)
		b.Up()
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if n := len(second.told(broker.Assigned)); n > 0 {
			t.Errorf("who has stopped was told of %d claims", n)
		}
		if gaps := first.told(broker.Gap); len(gaps) != 1 || gaps[0].From != 0 || gaps[0].N != 3 {
			t.Errorf("gaps %+v were told, want one of 3 messages from 0", gaps)
		}
	})
}

// What was handed out, and is gone when its lease runs out, counts from the first of it: with what nobody has seen yet, too.
func TestGapOfWhatWasHandedOut(t *testing.T) {
	for name, below := range map[string]int64{"handed out": 6, "and beyond": 13} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Leased: true, Topics: map[string]int{"orders": 1}, Lease: 2 * time.Second})
				first := open(t, b, membroker.SourceConfig{}, 10)
				produce(t, b, "orders", 20)
				ms := first.receive(10)
				start := ms[0].Offset
				if err := first.ack(ms[:2]...); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second) // else the acks die with it
				first.Kill()
				if err := b.Trim("orders", -1, below); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				second := open(t, b, membroker.SourceConfig{}, 10)
				second.receive(1)
				gaps := second.told(broker.Gap)
				if len(gaps) != 1 || gaps[0].From != start+2 || gaps[0].N != below-start-2 {
					t.Errorf("gaps %+v were told, want one of %d messages from %d", gaps, below-start-2, start+2)
				}
			})
		})
	}
}

// What was to be looked at again is finished before that is done, and then the log is cut off below: what was finished stays so.
func TestTrimBelowWhatWasFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1}, Lease: 2 * time.Second})
		p := open(t, b, membroker.SourceConfig{}, 30)
		produce(t, b, "orders", 19)
		ms := p.receive(19)
		if err := b.Redeliver("group", "orders", ms[0].Claim.Partition, 10); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // it looks
		if err := p.ack(ms...); err != nil {
			t.Fatal(err)
		}
		if err := b.Trim("orders", ms[0].Claim.Partition, 15); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Pause(), p.Resume()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		produce(t, b, "orders", 1)
		if got := p.receive(1); len(got) != 1 || got[0].Offset != 19 {
			t.Errorf("got %d messages from %d, want the one at 19", len(got), got[0].Offset)
		}
	})
}
