package membroker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/broker/membroker"
)

// consumer is an opened source and what it said.
type consumer struct {
	*membroker.Source
	t testing.TB

	mu     sync.Mutex
	events []broker.Event
}

func (c *consumer) saw(e broker.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

// kinds are those of the events that it was told, of these kinds, in their order.
func (c *consumer) kinds(of ...broker.Kind) (ks []broker.Kind) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if slices.Contains(of, e.Kind) {
			ks = append(ks, e.Kind)
		}
	}
	return ks
}

func (c *consumer) told(k broker.Kind) (es []broker.Event) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Kind == k {
			es = append(es, e)
		}
	}
	return es
}

// open opens a source of the group "group" inside a bubble; the test's end closes it.
func open(t testing.TB, b *membroker.Broker, cfg membroker.SourceConfig, messages int) *consumer {
	t.Helper()
	c := &consumer{Source: b.Source(cfg), t: t}
	o := broker.Options{Budget: broker.Budget{Messages: messages, Bytes: 1 << 20}, Observe: c.saw}
	if _, err := c.Open(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// receive receives n messages.
func (c *consumer) receive(n int) []broker.Message {
	c.t.Helper()
	var ms []broker.Message
	for len(ms) < n {
		dst := make([]broker.Message, n-len(ms))
		k, err := c.Receive(dst)
		if err != nil {
			c.t.Fatal(err)
		}
		ms = append(ms, dst[:k]...)
	}
	return ms
}

func (c *consumer) ack(ms ...broker.Message) error {
	var errs []error
	for _, m := range ms {
		errs = append(errs, c.Ack(m.Claim, []uint64{m.Token}))
	}
	return errors.Join(errs...)
}

func produce(t testing.TB, b *membroker.Broker, topic string, n int) {
	t.Helper()
	for range n {
		if err := b.Produce(broker.Outgoing{Topic: topic, Value: []byte("value")}); err != nil {
			t.Fatal(err)
		}
	}
}

var orders = map[string]int{"orders": 1}

// both runs a test on both kinds of broker, in a bubble.
func both(t *testing.T, f func(t *testing.T, c membroker.Config)) {
	for name, leased := range map[string]bool{"partitioned": false, "leased": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f(t, membroker.Config{Leased: leased, Topics: orders, Lease: time.Second})
			})
		})
	}
}

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

// A repeated ID is stored once, for each partition or stream; it travels as a header.
func TestRepeatedID(t *testing.T) {
	both(t, func(t *testing.T, c membroker.Config) {
		b := membroker.New(c)
		for range 3 {
			if err := b.Produce(broker.Outgoing{Topic: "orders", ID: "one",
				Headers: []broker.Header{{Key: "a", Value: []byte("1")}}}); err != nil {
				t.Fatal(err)
			}
		}
		ms := b.Messages("orders")
		if len(ms) != 1 {
			t.Fatalf("%d messages are stored, want 1", len(ms))
		}
		if v, _ := ms[0].Headers.Get(broker.HeaderID); string(v) != "one" || ms[0].Headers.Len() != 2 {
			t.Errorf("the header says %q", v)
		}
	})
}

func TestKeysKeepTheirPartition(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 8}})
	for range 5 {
		for _, key := range []string{"a", "b", "c", "d"} {
			if err := b.Produce(broker.Outgoing{Topic: "orders", Key: []byte(key)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := map[string]int32{}
	for _, m := range b.Messages("orders") {
		if p, known := at[string(m.Key)]; known && p != m.Partition {
			t.Errorf("key %q is in partitions %d and %d", m.Key, p, m.Partition)
		}
		at[string(m.Key)] = m.Partition
	}
	if len(at) != 4 {
		t.Errorf("keys are %v", at)
	}
}

// Fill stores a long log in the memory of a few messages; offsets go on through it.
func TestFill(t *testing.T) {
	both(t, func(t *testing.T, c membroker.Config) {
		b := membroker.New(c)
		if err := b.Fill(0, 1000, broker.Outgoing{Topic: "orders", Value: []byte("0")},
			broker.Outgoing{Topic: "orders", Value: []byte("1")},
			broker.Outgoing{Topic: "orders", Value: []byte("2")}); err != nil {
			t.Fatal(err)
		}
		produce(t, b, "orders", 1)
		s := open(t, b, membroker.SourceConfig{Prefetch: 7}, 2000)
		ms := s.receive(1001)
		first := ms[0].Offset
		for i, m := range ms {
			if want := string("012"[i%3]); i < 1000 && string(m.Value) != want || m.Offset != first+int64(i) {
				t.Fatalf("message %d is %q at offset %d", i, m.Value, m.Offset)
			}
		}
		if err := s.ack(ms...); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if n := b.Unsettled("group"); n != 0 {
			t.Errorf("%d are unsettled", n)
		}
	})
}

// A stream has all topics, and a group sees its own.
func TestStreamOfSeveralTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Leased: true})
		for range 3 {
			produce(t, b, "other", 2)
			produce(t, b, "orders", 2)
		}
		s := open(t, b, membroker.SourceConfig{Topics: []string{"orders"}}, 100)
		ms := s.receive(6)
		for i, want := range []int64{3, 4, 7, 8, 11, 12} {
			if ms[i].Offset != want || ms[i].Topic != "orders" {
				t.Errorf("message %d is %s/%d, want orders/%d", i, ms[i].Topic, ms[i].Offset, want)
			}
		}
		if err := s.ack(ms...); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if n, l := b.Unsettled("group"), s.Lag(); n != 0 || l.Unsettled != 0 || l.Waiting != 0 {
			t.Errorf("%d are unsettled, the lag is %+v", n, l)
		}
		if !b.Settled("group", "orders", -1, 12) || b.Settled("group", "elsewhere", -1, 1) {
			t.Error("Settled is wrong")
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
