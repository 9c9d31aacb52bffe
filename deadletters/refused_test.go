package deadletters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/longshoremq/longshore/broker"
)

// The broker is away: what was begun is uncertain, and the next run clears it up.
func TestReplayFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bench(t, false, 20)
		l := open(t, b, &failing{Publisher: b.Publisher(), topic: "orders"})
		sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Batch: 5})
		if err == nil || !strings.Contains(err.Error(), "5 letters were not confirmed") || sum.Replayed != 0 {
			t.Fatalf("%+v %v", sum, err)
		}
		sum, err = open(t, b, b.Publisher()).Replay(t.Context(), Replay{Allow: fromOrders})
		if err != nil || sum.Replayed != 20 || len(sum.Absent) != 5 || len(sum.PerhapsTwice) != 0 {
			t.Fatalf("%+v %v", sum, err)
		}
	})
}

type failing struct {
	broker.Publisher
	topic string
}

func (f *failing) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if ms[0].Topic == f.topic {
		return errors.New("no route")
	}
	return f.Publisher.Publish(ctx, ms)
}

// What the topic refuses is named with its reason and stays to be replayed; the others of its batch are done.
func TestReplayRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, leased bool) {
		b := bench(t, leased, 10)
		l := open(t, b, &picky{Publisher: b.Publisher(), topic: "orders", values: []string{"3", "7"}})
		sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders})
		if err != nil || sum.Replayed != 8 || sum.Refused != 2 || len(sum.Refusals) != 2 ||
			!errors.Is(sum.Refusals[0].Err, broker.ErrRefused) {
			t.Fatalf("%+v %v", sum, err)
		}
		if n := len(list(t, l, Filter{State: Waiting})); n != 2 {
			t.Errorf("%d letters wait, want the two that were refused", n)
		}
		sum, err = open(t, b, b.Publisher()).Replay(t.Context(), Replay{Allow: fromOrders})
		if err != nil || sum.Replayed != 2 || len(sum.PerhapsTwice) != 0 {
			t.Fatalf("%+v %v", sum, err)
		}
		wantOnce(t, copies(t, b, "orders"), 10)
	})
}

// What is refused after an answer got lost may have been stored before: it is not taken for one that was not.
func TestReplayRefusedAfterALostAnswer(t *testing.T) {
	onBoth(t, func(t *testing.T, leased bool) {
		b := bench(t, leased, 10)
		p := &losing{Publisher: b.Publisher(), topic: "orders"}
		sum, err := open(t, b, p).Replay(t.Context(), Replay{Allow: fromOrders})
		if err == nil || !strings.Contains(err.Error(), "10 letters were not confirmed") || sum.Refused != 0 {
			t.Fatalf("%+v %v", sum, err)
		}
		sum, err = open(t, b, b.Publisher()).Replay(t.Context(), Replay{Allow: fromOrders})
		if err != nil || len(sum.PerhapsTwice) != 0 {
			t.Fatalf("%+v %v", sum, err)
		}
		wantOnce(t, copies(t, b, "orders"), 10)
	})
}

// A losing publisher stores what is published to a topic, loses the answer, and refuses all that comes after it.
type losing struct {
	broker.Publisher
	topic string
	lost  bool
}

func (p *losing) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if ms[0].Topic != p.topic {
		return p.Publisher.Publish(ctx, ms)
	}
	if p.lost {
		return broker.ErrRefused
	}
	p.lost = true
	return errors.Join(p.Publisher.Publish(ctx, ms), errors.New("answer lost"))
}

// A picky publisher refuses some messages to a topic.
type picky struct {
	broker.Publisher
	topic  string
	values []string
}

func (p *picky) Publish(ctx context.Context, ms []broker.Outgoing) error {
	each := &broker.PublishError{Errs: make([]error, len(ms))}
	var left []broker.Outgoing
	for i, m := range ms {
		if m.Topic == p.topic && slices.Contains(p.values, string(m.Value)) {
			each.Errs[i] = fmt.Errorf("too large: %w", broker.ErrRefused)
			continue
		}
		left = append(left, m)
	}
	if err := p.Publisher.Publish(ctx, left); err != nil || len(left) == len(ms) {
		return err
	}
	return each
}

// A double publisher publishes to two places, the second of which does not take all at the first time.
type double struct {
	*picky
	second int
}

func (d *double) Publish(ctx context.Context, ms []broker.Outgoing) error {
	err := d.picky.Publish(ctx, ms)
	if ms[0].Topic != d.topic {
		return err
	}
	if d.second++; d.second == 1 {
		return errors.Join(err, errors.New("the second place is away"))
	}
	return err
}

// What a publisher says beside its word on each message is for all of them: they are published again.
func TestReplayToTwoPlaces(t *testing.T) {
	onBoth(t, func(t *testing.T, leased bool) {
		b := bench(t, leased, 10)
		p := &double{picky: &picky{Publisher: b.Publisher(), topic: "orders", values: []string{"3"}}}
		sum, err := open(t, b, p).Replay(t.Context(), Replay{Allow: fromOrders})
		if err != nil || sum.Replayed != 9 || sum.Refused != 1 || p.second != 2 {
			t.Errorf("%+v %v, published %d times, want twice", sum, err, p.second)
		}
	})
}
