package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// dispatchRetries is dispatch for the source of the retry topics: what is due is handled, what is not is given back and its claim
// held.
func (in *intake) dispatchRetries(submits context.Context, f *feed) error {
	slab := slab{most: min(in.cfg.Chunk, in.cfg.retryBudget().Messages)}
	var ahead lead
	for {
		in.gate.wait(submits)
		slab.renew()
		n, err := f.source.Receive(slab.free)
		if errors.Is(err, broker.ErrClosed) {
			return stoppedBy(submits)
		}
		if err != nil {
			return fmt.Errorf("receiving from the retry topics: %w", err)
		}
		ms := slab.take(n)
		in.till.received(n)
		in.passRetries(submits, in.claimOf(f, ms[0].Claim), ms, &ahead)
	}
}

// passRetries queues the messages of a retry topic that are due, up to the first that is not.
func (in *intake) passRetries(submits context.Context, k *claim, ms []broker.Message, ahead *lead) {
	now, who := time.Now(), in.cfg.who()
	var ws []*work
	for i := range ms {
		o, due := in.due(&ms[i], ahead, now)
		if due.After(now) {
			in.hold(k, ms[i:], due, ahead, now)
			break
		}
		o.restore(&ms[i], who)
		in.received.Add(1)
		var was past
		if !o.first.IsZero() {
			was.first = in.tell.clock.told(o.first)
		}
		if in.cfg.Batch != nil {
			in.till.gather(k, ms[i:i+1], nil, was, false)
			continue
		}
		w := new(work)
		w.init(k, ms[i:i+1:i+1], nil)
		w.past = was
		ws = append(ws, w)
	}
	if len(ws) > 0 {
		in.till.submit(submits, k, ws)
	}
}

// due is where a message comes from, and when it may be handled.
func (in *intake) due(m *broker.Message, ahead *lead, now time.Time) (o origin, due time.Time) {
	o = readOrigin(m)
	o.due = o.due.Add(-ahead.of(o.last, m.Time(), now))
	return o, in.cfg.Retry.Topics.dueOf(m, o, now)
}

// hold gives back messages that are not due, and holds their claim until the first of them is, and those that come soon after it.
// Where the broker keeps the delay each has its own: else all of them would come again with the first, and again with the second,
// and a broker that counts deliveries would have them used up without a run.
func (in *intake) hold(k *claim, ms []broker.Message, first time.Time, ahead *lead, now time.Time) {
	late := in.cfg.Retry.Topics.lateness(k.Topic)
	k.feed.hold(k.Claim, first.Add(late)) // before the rest, or they would be fetched again at once
	back := backs(ms)
	if most := k.feed.traits.NativeDelay; most > 0 {
		for i := range back {
			_, due := in.due(&ms[i], ahead, now)
			back[i].Delay = min(max(due.Add(late).Sub(now), 0), most)
		}
	}
	in.till.nack(k, back, nil)
}

// A lead is how far clocks of those who write to the retry topics are known to be ahead of ours: what they say has been is still
// to come by ours. Without it their messages, and all that stand behind them, would wait for that, too, which for a clock that
// was never set is years. Which of the two is wrong does not matter.
type lead struct {
	stamped time.Duration // of those whose messages have a time by the same clock
	stored  time.Duration // of those whose messages have a time by ours, or by one that is behind
}

// sameClock is how far apart clocks are that count as the same: who is a little ahead of us is not the one who is far ahead.
const sameClock = time.Second

// of is by how much later than ours the clock of a message says what it says, when it failed last at that time, and was published
// at the other. Where that is by our clock the two tell it themselves: a message that was forged to have failed in years says
// nothing of others, whose delay would be over at once.
func (l *lead) of(last, published, now time.Time) time.Duration {
	d := last.Sub(now)
	switch {
	case d < sameClock:
		return max(0, d)
	case published.Sub(now) >= sameClock:
		l.stamped = max(l.stamped, d)
		return l.stamped
	}
	l.stored = max(l.stored, d) // less than what the two tell, where the broker's clock is behind
	return min(l.stored, last.Sub(published))
}

// mostPublishing is how much later than its failure a message may have been published to a retry topic.
const mostPublishing = time.Minute

// dueOf is when a message of a retry topic may be handled. A time that no longshore wrote, further away than the longest step, is
// not believed: from when the broker stored the message, or, where the broker's clock is behind, from the failure, if that has
// been. Where that time is its producer's and still to come, nothing of it is, and it may be handled at once: what stands behind
// it would wait, too.
func (t *RetryTopics) dueOf(m *Message, o origin, now time.Time) time.Time {
	longest := t.Steps[len(t.Steps)-1].Delay
	if m.Time().After(now) && o.due.After(now.Add(longest+mostPublishing)) {
		return now
	}
	last := m.Time().Add(longest)
	if !o.due.After(last) || !o.last.After(now) && !o.due.After(o.last.Add(longest+mostPublishing)) {
		return o.due
	}
	return last
}

// lateness is how much later than its time a message of that topic may come.
func (t *RetryTopics) lateness(topic string) time.Duration {
	for _, s := range t.Steps {
		if s.Topic == topic {
			return min(s.Delay/laterBy, latest)
		}
	}
	return 0
}
