package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// restless is a source that can let nothing wait.
type restless struct{ broker.Source }

// What is not due in a retry topic has to wait at its source. From one that neither holds claims nor keeps delays it came again
// at once, given back without end.
func TestRetrySourceThatLetsNothingWait(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		topics := retries(b)
		topics.Source = restless{topics.Source}
		c, err := consumer.New(consumer.Config{
			Source:  b.Source(membroker.SourceConfig{Group: "group", Topics: []string{"in"}}),
			Retry:   consumer.Retry{Topics: topics},
			Handler: func(context.Context, *consumer.Message) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Retry.Topics.Source") {
			t.Errorf("Run returned %v, want what is wrong with the source", err)
		}
	})
}

// A consumer whose retry topics are read no more ends: what waits there would wait for ever.
func TestRetrySourceFailsForGood(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		topics, told := retries(b), errors.New("told to fail for good")
		topics.Source = failing{topics.Source, told}
		r := start(t, b, consumer.Config{Retry: consumer.Retry{Topics: topics},
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		time.Sleep(time.Minute)
		select {
		case <-r.done:
		default:
			t.Error("the consumer goes on")
		}
		if err := r.end(); !errors.Is(err, told) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// failing is a source that ends at once.
type failing struct {
	broker.Source
	err error
}

func (f failing) Receive([]broker.Message) (int, error) { return 0, f.err }

func (failing) Hold(*broker.Claim, time.Time) {}

// unheld is a source that cannot hold a claim; its broker keeps delays.
type unheld struct{ broker.Source }

// Messages of a retry topic that are due one after the other come each at its time. They all came again with the first, and with
// the second: a broker that counts deliveries had used them up when their own time came.
func TestRetriesOfABrokerThatKeepsDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 60
		main := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		b := membroker.New(membroker.Config{Leased: true, Topics: map[string]int{"in-1m": 1}, Lease: time.Minute})
		at := time.Now().Add(30 * time.Second)
		for i := range n {
			due := at.Add(time.Duration(i) * time.Second).UTC().Format(time.RFC3339Nano)
			if err := b.Produce(broker.Outgoing{Topic: "in-1m", Value: []byte(fmt.Sprint(i)),
				Headers: []broker.Header{{Key: broker.HeaderRetryAt, Value: []byte(due)}}}); err != nil {
				t.Fatal(err)
			}
		}
		var l ledger
		r := start(t, main, consumer.Config{
			Retry: consumer.Retry{Topics: &consumer.RetryTopics{
				Steps: []consumer.RetryStep{{Topic: "in-1m", Delay: 2 * time.Minute}}, Publisher: b.Publisher(),
				Source: unheld{b.Source(membroker.SourceConfig{Topics: []string{"in-1m"}})},
			}},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if m.Attempt > m.Runs+2 {
					t.Errorf("message %s is handled as attempt %d, after %d runs", m.Value, m.Attempt, m.Runs)
				}
				l.add(m)
				return nil
			}})
		time.Sleep(5 * time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		l.check(t, n)
	})
}

// Whatever producers write into the headers, a retry topic's messages are handled, in time.
func TestForgedRetryHeaders(t *testing.T) {
	for _, forged := range []broker.Header{
		{Key: broker.HeaderRetryAt, Value: []byte("9999-01-01T00:00:00Z")},
		{Key: broker.HeaderRetryAt, Value: []byte("soon")},
		{Key: broker.HeaderAttempts, Value: []byte("-7")},
		{Key: broker.HeaderAttempts, Value: []byte("99999999999")},
		{Key: broker.HeaderOriginalPartition, Value: []byte("x")},
		{Key: broker.HeaderOriginalTime, Value: []byte("yesterday")},
		{Key: broker.HeaderOriginalTopic, Value: nil},
		{Key: "own", Value: []byte{0, 255}},
	} {
		t.Run(fmt.Sprintf("%s=%q", forged.Key, forged.Value), func(t *testing.T) {
			withRetries(t, func(t *testing.T, b *membroker.Broker) {
				headers := []broker.Header{forged, {Key: broker.HeaderLastFailure, Value: forged.Value}}
				if err := b.Produce(broker.Outgoing{Topic: "in-1m", Value: []byte("0"), Headers: headers}); err != nil {
					t.Fatal(err)
				}
				var l ledger
				r := start(t, b, consumer.Config{
					Retry: consumer.Retry{Topics: retries(b)},
					Handler: func(_ context.Context, m *consumer.Message) error {
						if m.Topic != "in-1m" || m.Runs != 0 || m.Attempt != 1 {
							t.Errorf("%+v", m)
						}
						l.add(m)
						return nil
					}})
				time.Sleep(11 * time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				l.check(t, 1)
			})
		})
	}
}

// belated is a source whose broker's clock is behind ours.
type belated struct {
	*membroker.Source
	by time.Duration
}

func (s belated) Receive(ms []broker.Message) (int, error) {
	n, err := s.Source.Receive(ms)
	for i := range ms[:n] {
		if string(ms[i].Value) != "forged" {
			ms[i].Nanos -= int64(s.by)
		}
	}
	return n, err
}

// A broker that stamps messages by a clock which is far behind takes no delay from a retry topic: all attempts would be over at
// once.
func TestRetryTopicOfASlowClock(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		if err := b.Produce(broker.Outgoing{Topic: "in", Headers: []broker.Header{{Key: "own"}}}); err != nil {
			t.Fatal(err)
		}
		topics := retries(b)
		topics.Source = belated{topics.Source.(*membroker.Source), 48 * time.Hour}
		seen := calls{begin: time.Now()}
		r := start(t, b, consumer.Config{
			Retry: consumer.Retry{MaxAttempts: 10, Topics: topics},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if seen.add(m) < 3 {
					return consumer.RetryAfter(errors.New("not yet"), 10*time.Minute)
				}
				return nil
			}})
		time.Sleep(time.Hour)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		for i, least := range []time.Duration{0, 10 * time.Minute, 20 * time.Minute} {
			if after := seen.all[i].after; after < least || after > least+time.Minute {
				t.Errorf("run %d began after %v, want %v", i+1, after, least)
			}
		}
		if len(seen.all) != 3 {
			t.Errorf("%d runs, want 3", len(seen.all))
		}
	})
}

// otherClock is a publisher whose process has a clock that is ahead of ours by so much.
type otherClock struct {
	broker.Publisher
	by time.Duration
}

func (p otherClock) Publish(ctx context.Context, ms []broker.Outgoing) error {
	for i := range ms {
		ms[i].Headers = slices.Clone(ms[i].Headers)
		for j, h := range ms[i].Headers {
			switch h.Key {
			case broker.HeaderRetryAt, broker.HeaderFirstFailure, broker.HeaderLastFailure:
				at, err := time.Parse(time.RFC3339Nano, string(h.Value))
				if err != nil {
					return err
				}
				ms[i].Headers[j].Value = []byte(at.Add(p.by).Format(time.RFC3339Nano))
			}
		}
	}
	return p.Publisher.Publish(ctx, ms)
}

// Where the clock of the process that wrote to a retry topic is far ahead of ours, or ours far behind all others, messages wait
// for their delay and not for the difference; and so do those behind them. A message that was forged changes nothing for the
// others.
func TestRetryTopicOfOtherClocks(t *testing.T) {
	for name, tc := range map[string]struct {
		writer, store time.Duration
		forged        bool // a message comes first that failed in 2150, as it says
	}{
		"the writer's is an hour ahead":                      {writer: time.Hour},
		"the writer's is an hour ahead, and stamps messages": {writer: time.Hour, store: time.Hour},
		"ours is years behind":                               {writer: 30 * 365 * 24 * time.Hour, store: 30 * 365 * 24 * time.Hour},
		"the writer's is a little ahead":                     {writer: 300 * time.Millisecond},
		"the broker's is an hour ahead":                      {store: time.Hour},
		"a forged one, and an hour ahead":                    {writer: time.Hour, forged: true},
		"a forged one, and an hour ahead with its stamps":    {writer: time.Hour, store: time.Hour, forged: true},
	} {
		t.Run(name, func(t *testing.T) {
			withRetries(t, func(t *testing.T, b *membroker.Broker) {
				const n, delay = 20, 10 * time.Minute
				topics := retries(b)
				topics.Publisher = otherClock{topics.Publisher, tc.writer}
				topics.Source = belated{topics.Source.(*membroker.Source), -tc.store}
				if tc.forged {
					forge(t, b)
				}
				var failed, again sync.Map
				r := start(t, b, consumer.Config{
					Retry: consumer.Retry{Topics: topics},
					Handler: func(_ context.Context, m *consumer.Message) error {
						if m.Runs == 0 && string(m.Value) != "forged" {
							failed.Store(string(m.Value), time.Now())
							return consumer.RetryAfter(errors.New("not yet"), delay)
						}
						again.Store(string(m.Value), time.Now())
						return nil
					}})
				for i := range n {
					if err := b.Produce(broker.Outgoing{Topic: "in", Value: fmt.Append(nil, i)}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
				}
				time.Sleep(2 * delay)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				for i := range n {
					first, _ := failed.Load(fmt.Sprint(i))
					second, came := again.Load(fmt.Sprint(i))
					if !came {
						t.Errorf("message %d did not come again", i)
					} else if wait := second.(time.Time).Sub(first.(time.Time)); wait < delay || wait > delay+time.Minute {
						t.Errorf("message %d came again after %v, want %v", i, wait, delay)
					}
				}
			})
		})
	}
}

// forge publishes a message to a retry topic that failed in 2150, as it says; its own time is that of now.
func forge(t *testing.T, b *membroker.Broker) {
	t.Helper()
	at := []broker.Header{{Key: broker.HeaderLastFailure, Value: []byte("2150-01-01T00:00:00Z")}}
	if err := b.Produce(broker.Outgoing{Topic: "in-10m", Value: []byte("forged"), Headers: at}); err != nil {
		t.Fatal(err)
	}
}

// What is published to a retry topic is read as what it is, by its source: else it does not wait as the steps say, or dead
// letters are handled again.
func TestRetryTopicsAreReadByTheirSourceAlone(t *testing.T) {
	b := membroker.New(membroker.Config{})
	cfg := consumer.Config{
		Source:  b.Source(membroker.SourceConfig{Topics: []string{"in", "in-10m"}}),
		Handler: func(context.Context, *consumer.Message) error { return nil },
		Retry:   consumer.Retry{Topics: retries(b)}, DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "in-1m"},
	}
	cfg.Retry.Topics.Steps = append(cfg.Retry.Topics.Steps, consumer.RetryStep{Topic: "in-1m", Delay: time.Hour})
	_, err := consumer.New(cfg)
	for _, want := range []string{
		`Retry.Topics.Steps[1].Topic is "in-10m", which the consumer itself reads: its messages would not wait`,
		`Retry.Topics.Steps[2].Topic is "in-1m", and so is Retry.Topics.Steps[0].Topic: messages of a topic wait equally long`,
		`DeadLetter.Topic is "in-1m", which the consumer itself reads`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// stamped is a source whose broker keeps the times of producers, one of whom says that it is to come.
type stamped struct{ *membroker.Source }

func (s stamped) Receive(ms []broker.Message) (int, error) {
	n, err := s.Source.Receive(ms)
	for i := range ms[:n] {
		if v, ok := ms[i].Headers.Get("at"); ok {
			at, err := time.Parse(time.RFC3339, string(v))
			if err != nil {
				return 0, err
			}
			ms[i].Nanos = at.UnixNano()
		}
	}
	return n, err
}

// Of a message that is due in years, and says that it will have been published just before, it is not believed either: else all
// behind it would wait for as long.
func TestForgedTimeInARetryTopic(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		for i, hs := range [][]broker.Header{
			{{Key: broker.HeaderRetryAt, Value: []byte("2150-01-01T00:00:10Z")}, {Key: "at", Value: []byte("2150-01-01T00:00:00Z")}},
			{{Key: broker.HeaderRetryAt, Value: []byte("2150-01-01T00:00:10Z")}, {Key: "at", Value: []byte("2150-01-01T00:00:00Z")},
				{Key: broker.HeaderLastFailure, Value: []byte("1900-01-01T00:00:00Z")}},
			nil,
		} {
			if err := b.Produce(broker.Outgoing{Topic: "in-1m", Value: fmt.Append(nil, i), Headers: hs}); err != nil {
				t.Fatal(err)
			}
		}
		topics := retries(b)
		topics.Source = stamped{topics.Source.(*membroker.Source)}
		var l ledger
		r := start(t, b, consumer.Config{Retry: consumer.Retry{Topics: topics},
			Handler: func(_ context.Context, m *consumer.Message) error { l.add(m); return nil }})
		time.Sleep(11 * time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		l.check(t, 3)
	})
}
