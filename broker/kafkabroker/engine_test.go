package kafkabroker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/consumer"
)

// These tests run the whole engine on the adapter, where a promise needs both.

// runConsumer runs a consumer of the first topic until stop is called.
func (ts *testSystem) runConsumer(t *testing.T, l *link, c consumer.Config) (running *consumer.Consumer, stop func() error) {
	t.Helper()
	cfg := ts.config(l)
	cfg.Topics = ts.topics[:1]
	var err error
	if c.Source, err = NewSource(cfg); err != nil {
		t.Fatal(err)
	}
	running, err = consumer.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- running.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-over })
	t.Cleanup(func() { _ = stop() })
	return running, stop
}

var errPoison = errors.New("poison")

// deadLetters are the records of the second topic, as another client reads them.
func (ts *testSystem) deadLetters(t *testing.T, n int) (got []*kgo.Record) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(ts.brokers...), kgo.ConsumeTopics(ts.topics[1]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for len(got) < n {
		fs := c.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatalf("%d of %d dead letters: %v", len(got), n, err)
		}
		fs.EachRecord(func(r *kgo.Record) { got = append(got, r) })
	}
	return got
}

func headerOf(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// TestDeadLetterTopicDown: the dead-letter topic takes nothing (f38). The other messages are handled, and nothing is committed
// past a message whose letter is not confirmed; when the topic is back, all letters are there.
func TestDeadLetterTopicDown(t *testing.T) {
	t.Parallel()
	const n, every, first = 40, 10, 3
	ts := startFake(t, brokertest.Setup{Topics: 2, Partitions: 1}, "sticky")
	fault := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: ts.topics[1], Err: kerr.NotEnoughReplicas,
		Count: -1})
	ts.put(t, ts.topics[0], 0, n)
	p := ts.publisher(t)
	defer func() { _ = p.Close(context.Background()) }()
	var mu sync.Mutex
	good := 0
	_, stop := ts.runConsumer(t, ts.net.link(), consumer.Config{
		DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: ts.topics[1]},
		Retry:      consumer.Retry{Backoff: consumer.Backoff{Initial: 10 * time.Millisecond, Max: 20 * time.Millisecond}},
		Handler: func(_ context.Context, m *consumer.Message) error {
			if m.Offset%every == first {
				return consumer.Permanent(errPoison)
			}
			mu.Lock()
			good++
			mu.Unlock()
			return nil
		}})
	eventually(t, "the good ones are handled", func() bool { mu.Lock(); defer mu.Unlock(); return good == n-n/every })
	eventually(t, "letters were tried", func() bool { return fault.Hits() >= 3 })
	in := func() progressOf { return ts.fakeProgress(ts.topics[0])[0] }
	eventually(t, "what is before the first bad one is committed", func() bool { return in().committed == first })
	if end := ts.fakeProgress(ts.topics[1])[0].end; end != 0 {
		t.Errorf("the dead-letter topic has %d messages", end)
	}
	fault.Remove()
	letters := ts.deadLetters(t, n/every)
	eventually(t, "all is committed", func() bool { return in().committed == n })
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	for _, r := range letters {
		if headerOf(r, broker.HeaderOriginalTopic) != ts.topics[0] || headerOf(r, broker.HeaderID) == "" {
			t.Errorf("a letter has the headers %v", r.Headers)
		}
	}
}

// dying publishes, and then the process dies before it can ack.
type dying struct {
	broker.Publisher
	l *link
}

func (d dying) Publish(ctx context.Context, ms []broker.Outgoing) error {
	err := d.Publisher.Publish(ctx, ms)
	d.l.kill()
	return err
}

// TestCrashAfterDeadLetter: the process dies between the letter's publish and the commit (f39): the letter comes twice, under one
// id, and never not at all.
func TestCrashAfterDeadLetter(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 2, Partitions: 1}, "sticky")
	ts.put(t, ts.topics[0], 0, 1)
	p := ts.publisher(t)
	defer func() { _ = p.Close(context.Background()) }()
	for i := range 2 {
		l := ts.net.link()
		letters := &consumer.DeadLetter{Publisher: p, Topic: ts.topics[1]}
		if i == 0 {
			letters.Publisher = dying{p, l}
		}
		_, stop := ts.runConsumer(t, l, consumer.Config{
			DeadLetter: letters, DrainTimeout: -1, CloseTimeout: 100 * time.Millisecond,
			Handler: func(context.Context, *consumer.Message) error { return consumer.Permanent(errPoison) }})
		// Or more than one: whose session runs out while the machine stands still has it to do again.
		eventually(t, "the letter is stored", func() bool { return ts.fakeProgress(ts.topics[1])[0].end > int64(i) })
		if i == 0 {
			if err := stop(); err == nil {
				t.Error("Run ends with nil although its last commit cannot have been made")
			}
			continue
		}
		eventually(t, "all is committed", func() bool { return ts.fakeProgress(ts.topics[0])[0].committed == 1 })
	}
	got := ts.deadLetters(t, 2)
	if a, b := headerOf(got[0], broker.HeaderID), headerOf(got[1], broker.HeaderID); a == "" || a != b {
		t.Errorf("the two letters have the ids %q and %q, want one", a, b)
	}
}

// TestWorkersComeAndGo: the number of workers changes every 100 ms under load (f41): nothing is lost and nothing is handled
// twice, and at each key's partition the committed offset ends at the log's end. (Goroutines left behind fail TestMain.)
func TestWorkersComeAndGo(t *testing.T) {
	t.Parallel()
	const n = 2000
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 4}, "sticky")
	ts.lease = lasting // it does not lose its session, however long the machine stands still
	var mu sync.Mutex
	times := make(map[string]int)
	running, stop := ts.runConsumer(t, ts.net.link(), consumer.Config{
		Pool: consumer.Pool{Min: 1, Max: 64},
		Handler: func(_ context.Context, m *consumer.Message) error {
			time.Sleep(2 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			times[string(m.Value)]++
			return nil
		}})
	over := make(chan struct{})
	var changes int
	var changing sync.WaitGroup
	changing.Go(func() {
		for ; ; changes++ {
			select {
			case <-over:
				return
			case <-time.After(100 * time.Millisecond):
			}
			limits := [][2]int{{1, 2}, {32, 64}}[changes%2]
			if err := running.SetLimits(limits[0], limits[1]); err != nil {
				t.Error(err)
			}
		}
	})
	for i := 0; i < n; i += 20 {
		ts.put(t, ts.topics[0], i, 20)
		time.Sleep(20 * time.Millisecond)
	}
	eventually(t, "all are handled", func() bool { mu.Lock(); defer mu.Unlock(); return len(times) == n })
	close(over)
	changing.Wait()
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	for v, k := range times {
		if k != 1 {
			t.Errorf("%s was handled %d times", v, k)
		}
	}
	if changes < 10 {
		t.Errorf("the number of workers was changed %d times", changes)
	}
	t.Logf("%d messages, %d changes", n, changes)
}
