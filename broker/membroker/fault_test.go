package membroker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/broker/membroker"
)

var orders = map[string]int{"orders": 1}

var errTold = errors.New("told to fail")

func TestFailOpen(t *testing.T) {
	both(t, func(t *testing.T, c membroker.Config) {
		b := membroker.New(c)
		b.Fail(membroker.OpOpen, 1, errTold)
		s := b.Source(membroker.SourceConfig{})
		o := broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(broker.Event) {}}
		if _, err := s.Open(context.Background(), o); !errors.Is(err, errTold) {
			t.Errorf("Open: %v, want the told error", err)
		}
		if _, err := s.Open(context.Background(), o); err == nil {
			t.Error("a second Open is accepted")
		}
	})
}

func TestFailReceive(t *testing.T) {
	both(t, func(t *testing.T, c membroker.Config) {
		b := membroker.New(c)
		produce(t, b, "orders", 3)
		s := open(t, b, membroker.SourceConfig{}, 10)
		ms := s.receive(3)
		b.Fail(membroker.OpReceive, 1, errTold)
		for range 2 {
			if n, err := s.Receive(make([]broker.Message, 1)); n != 0 || !errors.Is(err, errTold) {
				t.Errorf("Receive: %d, %v, want the told error", n, err)
			}
		}
		if err := s.ack(ms...); err != nil {
			t.Errorf("Ack after a fatal error: %v", err)
		}
		time.Sleep(time.Second)
		if n := b.Unsettled("group"); n != 0 {
			t.Errorf("%d are unsettled", n)
		}
	})
}

func TestFailPublish(t *testing.T) {
	b := membroker.New(membroker.Config{})
	b.Fail(membroker.OpPublish, 1, errTold)
	p := b.Publisher()
	err := p.Publish(context.Background(), []broker.Outgoing{{Topic: "dead"}, {Topic: "dead", Value: []byte("second")}})
	var pe *broker.PublishError
	if !errors.As(err, &pe) || !errors.Is(pe.Errs[0], errTold) || pe.Errs[1] != nil {
		t.Errorf("Publish: %v, want an error for the first message alone", err)
	}
	if ms := b.Messages("dead"); len(ms) != 1 || string(ms[0].Value) != "second" || ms[0].Offset != 0 {
		t.Errorf("the topic has %+v", ms)
	}
}

func TestDelay(t *testing.T) {
	both(t, func(t *testing.T, c membroker.Config) {
		b := membroker.New(c)
		produce(t, b, "orders", 1)
		b.Delay(100 * time.Millisecond)
		begin := time.Now()
		s := open(t, b, membroker.SourceConfig{}, 1)
		s.receive(1)
		if took := time.Since(begin); took < 200*time.Millisecond || took > time.Second {
			t.Errorf("opening and receiving took %v, want at least two delays", took)
		}
		p := b.Publisher()
		begin = time.Now()
		if err := p.Publish(context.Background(), []broker.Outgoing{{Topic: "orders"}}); err != nil ||
			time.Since(begin) != 100*time.Millisecond {
			t.Errorf("Publish took %v: %v", time.Since(begin), err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := p.Publish(ctx, []broker.Outgoing{{Topic: "orders"}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Publish with a short deadline: %v", err)
		}
	})
}

// A delivery that is lost on its way comes again after its lease, and is not extended by the process that never got it.
func TestDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Leased: true, Topics: orders, Lease: time.Second})
		produce(t, b, "orders", 5)
		b.Drop(2)
		begin := time.Now()
		s := open(t, b, membroker.SourceConfig{}, 10)
		ms := s.receive(5)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("the lost ones came after %v, want the lease", took)
		}
		for i, want := range []int64{3, 4, 5, 1, 2} {
			if ms[i].Offset != want {
				t.Errorf("message %d has offset %d, want %d", i, ms[i].Offset, want)
			}
		}
		if ms[4].Attempt != 2 {
			t.Errorf("a repeated delivery says Attempt %d", ms[4].Attempt)
		}
		if err := s.ack(ms...); err != nil {
			t.Error(err)
		}
	})
}

func TestReportLag(t *testing.T) {
	both(t, func(t *testing.T, c membroker.Config) {
		b := membroker.New(c)
		s := open(t, b, membroker.SourceConfig{}, 10)
		want := broker.Lag{Waiting: 1000, Unsettled: 1001, At: time.Now()}
		b.ReportLag(&want)
		synctest.Wait()
		if got := s.Lag(); got != want {
			t.Errorf("lag is %+v, want %+v", got, want)
		}
		b.ReportLag(nil)
		synctest.Wait()
		if got := s.Lag(); got.Unsettled != 0 || got.Group != c.Leased {
			t.Errorf("lag is %+v, want the true one", got)
		}
	})
}

func TestMoveNeedsAnOwner(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: orders})
	leased := membroker.New(membroker.Config{Leased: true, Topics: orders})
	for name, err := range map[string]error{
		"a group":     b.Revoke("group", "orders", 0),
		"no group":    b.Steal("nobody", "orders", 0),
		"a stream":    leased.Bounce("group", "orders", 0),
		"not out":     leased.Redeliver("group", "orders", -1, 1),
		"nobody's":    b.Redeliver("group", "orders", 0, 1),
		"not a topic": b.Redeliver("group", "else", 0, 1),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "membroker: ") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if got := b.Committed("group", "orders", 7); got != -1 {
		t.Errorf("committed of a partition that is not there is %d", got)
	}
}

// While one partition is on hold the others go on.
func TestHoldIsOfOneClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 2}})
		s := open(t, b, membroker.SourceConfig{}, 100)
		var held *broker.Claim
		for _, e := range s.told(broker.Assigned) {
			if e.Claim.Partition == 1 {
				held = e.Claim
			}
		}
		s.Hold(held, time.Now().Add(time.Minute))
		produce(t, b, "orders", 10)
		begin := time.Now()
		for _, m := range s.receive(5) {
			if m.Partition != 0 {
				t.Error("the held partition was handed out")
			}
		}
		if time.Since(begin) != 0 {
			t.Errorf("the other partition waited %v", time.Since(begin))
		}
		s.receive(5)
		if time.Since(begin) != time.Minute {
			t.Errorf("the held partition came after %v", time.Since(begin))
		}
	})
}

var (
	_ broker.Source               = (*membroker.Source)(nil)
	_ broker.PartitionLagReporter = (*membroker.Source)(nil)
	_ broker.Pauser               = (*membroker.Source)(nil)
	_ broker.Holder               = (*membroker.Source)(nil)
	_ broker.Rebudgeter           = (*membroker.Source)(nil)
	_ broker.Windowed             = (*membroker.Source)(nil)
	_ broker.Publisher            = (*membroker.Publisher)(nil)
	_                             = brokertest.Run
)
