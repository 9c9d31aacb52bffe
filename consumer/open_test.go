package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// While one of a consumer's sources cannot be opened, none of them takes what others could handle.
func TestSourcesClaimNothingBeforeAllAreThere(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		far := membroker.New(membroker.Config{})
		far.Down()
		var l ledger
		handler := func(_ context.Context, m *consumer.Message) error { l.add(m); return nil }
		of := func(b *membroker.Broker) consumer.Input {
			return consumer.Input{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}})}
		}
		both := start(t, b, consumer.Config{Sources: []consumer.Input{of(b), of(far)}, Handler: handler})
		time.Sleep(time.Minute)
		one := start(t, b, consumer.Config{Handler: handler})
		time.Sleep(time.Second)
		produce(t, b, 100)
		time.Sleep(time.Minute)
		l.check(t, 100)
		wantUnsettled(t, b, 0)
		if both.Ready() {
			t.Error("ready without one of its sources")
		}
		if err := one.end(); err != nil {
			t.Fatal(err)
		}

		far.Up()
		time.Sleep(time.Minute)
		if !both.Ready() {
			t.Error("not ready with both of its sources")
		}
		for _, b := range []*membroker.Broker{b, far} {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("more")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		l.mu.Lock()
		if l.n["more"] != 2 {
			t.Errorf("%d of 2 messages were handled when all was there", l.n["more"])
		}
		l.mu.Unlock()
		if err := both.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// Sources are opened beside each other, so that one that waits hides nothing of what is wrong with another.
func TestSourcesOpenBesideEachOther(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		far := membroker.New(membroker.Config{})
		far.Down()
		of := func(b *membroker.Broker) consumer.Input {
			return consumer.Input{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}})}
		}
		r := start(t, b, consumer.Config{
			Sources: []consumer.Input{of(far), {Source: refusing{of(b).Source}}},
			Handler: func(context.Context, *consumer.Message) error { return nil },
		})
		<-r.done
		if r.err == nil || !strings.Contains(r.err.Error(), "no such user") || errors.Is(r.err, context.Canceled) {
			t.Errorf("Run returned %v, want what is wrong with the second source, and no more", r.err)
		}
	})
}

// refusing is a source that its broker refuses.
type refusing struct{ broker.Source }

func (refusing) Open(context.Context, broker.Options) (broker.Traits, error) {
	return broker.Traits{}, errors.New("no such user")
}

// A source whose broker does not answer takes all the time that there is to close, and none of what the others have: their last
// acks need it.
func TestSourcesCloseBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		of := func(group string, hangs bool) *closing {
			return &closing{Source: b.Source(membroker.SourceConfig{Group: group, Topics: []string{"in"}}), hangs: hangs}
		}
		first, second := of("first", true), of("second", false)
		r := start(t, b, consumer.Config{
			Sources: []consumer.Input{{Source: first}, {Source: second}}, CloseTimeout: 3 * time.Second,
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		time.Sleep(time.Second)
		stopped := time.Now()
		if err := r.end(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run: %v, want the error of the first", err)
		}
		if took := time.Since(stopped); took > 4*time.Second {
			t.Errorf("the stop took %v", took)
		}
		if second.left < 2*time.Second {
			t.Errorf("the second had %v to close", second.left)
		}
	})
}

// A closing source notes how much time it has to close, and may use up all of it.
type closing struct {
	broker.Source
	hangs bool
	left  time.Duration
}

func (c *closing) Close(ctx context.Context) error {
	end, _ := ctx.Deadline()
	c.left = time.Until(end)
	if err := c.Source.Close(ctx); !c.hangs {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}
