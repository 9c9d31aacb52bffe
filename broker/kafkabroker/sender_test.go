package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// onProduce looks at each produce request, before the cluster answers it; what it returns is answered instead.
func (ts *testSystem) onProduce(look func(*kmsg.ProduceRequest) *kmsg.ProduceResponse) {
	ts.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		if r := look(req.(*kmsg.ProduceRequest)); r != nil {
			return r, nil, true
		}
		return nil, nil, false
	})
}

// refuse answers each partition with an error.
func refuse(req *kmsg.ProduceRequest, e *kerr.Error) *kmsg.ProduceResponse {
	r := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.BaseOffset = p.Partition, e.Code, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// values are what is stored in the partitions of the first topic.
func (ts *testSystem) values(t *testing.T) map[int32][]string {
	t.Helper()
	v, err := NewLogView(LogViewConfig{Connection: Connection{Brokers: ts.brokers}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	all := make(map[int32][]string)
	if _, err := v.Scan(t.Context(), broker.Scan{Topic: ts.topics[0]}, func(m *broker.Message) error {
		all[m.Partition] = append(all[m.Partition], string(m.Value))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPublishesShareRequests: what is published while a request is under way goes together with the next one.
func TestPublishesShareRequests(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 4, 1)
	p := ts.publisher(t).(*Publisher)
	defer func() { _ = p.Close(context.Background()) }()
	publish := func(v string) error {
		return p.Publish(context.Background(), []broker.Outgoing{{Topic: ts.topics[0], Value: []byte(v)}})
	}
	if err := publish("first"); err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int32
	met, goOn := make(chan struct{}, 1), make(chan struct{})
	ts.onProduce(func(*kmsg.ProduceRequest) *kmsg.ProduceResponse {
		if requests.Add(1) == 1 {
			met <- struct{}{}
			<-goOn
		}
		return nil
	})
	var all sync.WaitGroup
	all.Go(func() {
		if err := publish("held"); err != nil {
			t.Error(err)
		}
	})
	<-met
	const beside = 200
	for i := range beside {
		all.Go(func() {
			if err := publish(fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	waiting := func() (n int) {
		p.senders.mu.Lock()
		defer p.senders.mu.Unlock()
		for _, s := range p.senders.by {
			s.mu.Lock()
			n += len(s.queue)
			s.mu.Unlock()
		}
		return n
	}
	eventually(t, "all wait", func() bool { return waiting() == beside })
	close(goOn)
	all.Wait()
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests for %d publishes, want 2", n, beside+1)
	}
	n := 0
	for _, vs := range ts.values(t) {
		n += len(vs)
	}
	if n != beside+2 {
		t.Errorf("%d messages are stored, want %d", n, beside+2)
	}
}

// TestPublishLargeBatches: batches that are too large for their topic are cut until they are not, the next ones are smaller from
// the start, one message that is too large by itself is refused alone, and what goes to a partition keeps its order.
func TestPublishLargeBatches(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1) // one partition: the fake refuses whole requests
	p := ts.publisher(t)
	defer func() { _ = p.Close(context.Background()) }()
	var refused atomic.Int32
	const most = 100_000
	ts.onProduce(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		for _, t := range req.Topics {
			for _, part := range t.Partitions {
				if len(part.Records) > most {
					refused.Add(1)
					return refuse(req, kerr.MessageTooLarge)
				}
			}
		}
		return nil
	})
	var ms []broker.Outgoing
	for i := range 1500 {
		ms = append(ms, broker.Outgoing{Topic: ts.topics[0], Key: fmt.Appendf(nil, "%d", i%20),
			Value: append(fmt.Appendf(nil, "%06d", i), make([]byte, 994)...)})
	}
	const large = 700
	ms[large].Value = make([]byte, most+1)
	for round := range 3 {
		before := refused.Load()
		err := p.Publish(context.Background(), ms)
		var pe *broker.PublishError
		if !errors.As(err, &pe) {
			t.Fatal(err)
		}
		for i, err := range pe.Errs {
			if (err != nil) != (i == large) || err != nil && !errors.Is(err, broker.ErrRefused) {
				t.Errorf("round %d, message %d: %v", round, i, err)
			}
		}
		if n := refused.Load() - before; round > 0 && n > 12 {
			t.Errorf("round %d: %d requests were refused again", round, n)
		}
	}
	vs := ts.values(t)[0]
	if len(vs) != 3*(len(ms)-1) {
		t.Fatalf("%d messages are stored, want %d", len(vs), 3*(len(ms)-1))
	}
	for i, v := range vs {
		want := i % (len(ms) - 1)
		if want >= large {
			want++
		}
		if v[:6] != fmt.Sprintf("%06d", want) {
			t.Fatalf("message %s stands at %d, want %06d", v[:6], i, want)
		}
	}
}

// TestPublishGivenUp: what was not sent when its caller's time was over is not sent later, when nobody waits for it.
func TestPublishGivenUp(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	p := ts.publisher(t).(*Publisher)
	defer func() { _ = p.Close(context.Background()) }()
	publish := func(ctx context.Context, v string) error {
		return p.Publish(ctx, []broker.Outgoing{{Topic: ts.topics[0], Value: []byte(v)}})
	}
	if err := publish(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	met, goOn := make(chan struct{}, 1), make(chan struct{})
	var once sync.Once
	ts.onProduce(func(*kmsg.ProduceRequest) *kmsg.ProduceResponse {
		once.Do(func() { met <- struct{}{}; <-goOn })
		return nil
	})
	held := make(chan error, 1)
	go func() { held <- publish(t.Context(), "held") }()
	<-met
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() { given <- publish(ctx, "given up") }()
	eventually(t, "it waits", func() bool {
		p.senders.mu.Lock()
		defer p.senders.mu.Unlock()
		for _, s := range p.senders.by {
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.queue) == 1 {
				return true
			}
		}
		return false
	})
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("Publish returned %v", err)
	}
	close(goOn)
	if err := <-held; err != nil {
		t.Error(err)
	}
	if err := publish(t.Context(), "last"); err != nil {
		t.Error(err)
	}
	if vs := ts.values(t)[0]; fmt.Sprint(vs) != "[first held last]" {
		t.Errorf("stored: %v", vs)
	}
}

// TestPublishesEndApart: of many callers, of whom some give up and some have messages that are refused, each is told of its own.
func TestPublishesEndApart(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 4, 1)
	p := ts.publisher(t).(*Publisher)
	defer func() { _ = p.Close(context.Background()) }()
	var confirmed sync.Map
	var callers sync.WaitGroup
	for caller := range 32 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(caller)))
			for call := range 60 {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if r.IntN(3) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(2000))*time.Microsecond)
				}
				ms := make([]broker.Outgoing, 1+r.IntN(3))
				for i := range ms {
					ms[i] = broker.Outgoing{Topic: ts.topics[0], Value: fmt.Appendf(nil, "%d.%d.%d", caller, call, i)}
					if r.IntN(8) == 0 {
						ms[i].Topic = "no topic"
					}
				}
				err := p.Publish(ctx, ms)
				cancel()
				var each *broker.PublishError
				if err != nil && !errors.As(err, &each) {
					continue // it gave up: each may be stored
				}
				for i := range ms {
					failed := each != nil && each.Errs[i] != nil
					if bad := ms[i].Topic == "no topic"; bad && !failed || !bad && failed && ctx.Err() == nil {
						t.Errorf("message %d, for topic %q, of a call that returned %v", i, ms[i].Topic, err)
					}
					if !failed {
						confirmed.Store(string(ms[i].Value), nil)
					}
				}
			}
		})
	}
	callers.Wait()
	stored := make(map[string]bool)
	for _, vs := range ts.values(t) {
		for _, v := range vs {
			stored[v] = true
		}
	}
	n := 0
	confirmed.Range(func(v, _ any) bool {
		if n++; !stored[v.(string)] {
			t.Errorf("%v is confirmed and not stored", v)
		}
		return true
	})
	if n < 1000 {
		t.Errorf("%d messages are confirmed", n)
	}
}

// TestPublishesEndWithClose: who waits when Close's time is over gives up, whether the message was sent or not.
func TestPublishesEndWithClose(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	p := ts.publisher(t).(*Publisher)
	met, goOn := make(chan struct{}, 1), make(chan struct{})
	var once sync.Once
	ts.onProduce(func(*kmsg.ProduceRequest) *kmsg.ProduceResponse {
		once.Do(func() { met <- struct{}{}; <-goOn })
		return nil
	})
	defer close(goOn)
	ended := make(chan error, 2)
	publish := func() {
		ended <- p.Publish(context.Background(), []broker.Outgoing{{Topic: ts.topics[0], Value: []byte("held")}})
	}
	go publish()
	<-met
	go publish()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(over); !errors.Is(err, context.Canceled) {
		t.Errorf("Close returned %v", err)
	}
	for range 2 {
		if err := <-ended; err == nil || errors.Is(err, broker.ErrRefused) {
			t.Errorf("Publish returned %v", err)
		}
	}
	if err := p.Close(context.Background()); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

// TestPublishKeepsOrderOfCall: the leader of a partition is one from a moment on, and refuses the first request of a call whose
// messages need several. What comes behind them waits until they are stored.
func TestPublishKeepsOrderOfCall(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"one round of requests": 30, "several": 120} { // 100 KB each; 4 MB are taken at once
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := newTestSystem(t, 1, 1)
			p := ts.publisherFor(t, patience)
			defer func() { _ = p.Close(context.Background()) }()
			ts.answerProduce(1, kerr.NotLeaderForPartition, -1)
			var ms []broker.Outgoing
			var want []string
			for i := range n {
				want = append(want, fmt.Sprintf("%0100000d", i))
				ms = append(ms, broker.Outgoing{Topic: ts.topics[0], Key: []byte("k"), Value: []byte(want[i])})
			}
			if err := p.Publish(context.Background(), ms); err != nil {
				t.Fatal(err)
			}
			if got := ts.values(t)[0]; !slices.Equal(got, want) {
				var numbers []string
				for _, v := range got {
					numbers = append(numbers, v[len(v)-3:])
				}
				t.Errorf("stored in the order %v", numbers)
			}
		})
	}
}
