package kafkabroker

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Demands are what topics want of outputs, as is known of those that have refused some: else it would be refused for ever, and
// all others would wait for it. Safe for concurrent use.
type demands struct {
	of atomic.Pointer[map[string]demand] // by topics; never written to. nil: there are none
}

// A demand holds for a while, for the topic may be set up otherwise by then.
type demand struct {
	keyed time.Time // until then it takes nothing without a key, for it is compacted: destinations.learnKeyed
	small time.Time // until then it takes no batch of more than most bytes
	most  int
	plain bool // they go there without compression
}

func (d demand) over(now time.Time) bool { return !now.Before(d.keyed) && !now.Before(d.small) }

// demandFor is for how long outputs are refused.
const demandFor = 10 * time.Minute

func (x *demands) none() bool { return x.of.Load() == nil }

// key says that a topic wants keys; small, that it did not take a message by itself that was of a size on its way. Both have one
// caller at a time.
func (x *demands) key(topic string, now time.Time) {
	x.learn(topic, now, func(d *demand) { d.keyed = now.Add(demandFor) })
}

func (x *demands) small(topic string, size int, plain bool, now time.Time) {
	x.learn(topic, now, func(d *demand) {
		if !now.Before(d.small) || size <= d.most {
			d.most, d.plain = size-1, plain
		}
		d.small = now.Add(demandFor)
	})
}

func (x *demands) learn(topic string, now time.Time, change func(*demand)) {
	all := make(map[string]demand)
	if was := x.of.Load(); was != nil && len(*was) < mostLearned {
		maps.Copy(all, *was)
	}
	maps.DeleteFunc(all, func(_ string, d demand) bool { return d.over(now) })
	d := all[topic]
	change(&d)
	all[topic] = d
	x.of.Store(&all)
}

// refuse is nil where an output may be stored.
func (x *demands) refuse(o *broker.Outgoing) error {
	all := x.of.Load()
	if all == nil {
		return nil
	}
	d, known := (*all)[o.Topic]
	if !known {
		return nil
	}
	switch now := time.Now(); {
	case o.Key == nil && now.Before(d.keyed):
		return fmt.Errorf("kafkabroker: topic %s takes no message without a key (INVALID_RECORD; is it compacted?): %w", o.Topic,
			broker.ErrRefused)
	case now.Before(d.small) && d.tooLarge(o):
		return fmt.Errorf("kafkabroker: topic %s takes no message of %d bytes (MESSAGE_TOO_LARGE; see its max.message.bytes): %w",
			o.Topic, outgoingSize(o), broker.ErrRefused)
	}
	return nil
}

// tooLarge says whether an output is too large, as it would be sent by itself.
func (d demand) tooLarge(o *broker.Outgoing) bool {
	if headerSize+recordSize(o) <= d.most {
		return false
	}
	b := newOutBatch(partitionID{}, -1, recordSize(o))
	b.add(appendTail(nil, o))
	if !d.plain {
		b.squeeze()
	}
	defer b.spare()
	return len(b.buf) > d.most
}

// refuseAny is nil where all of them may.
func (x *demands) refuseAny(outs []broker.Outgoing) error {
	for i := range outs {
		if err := x.refuse(&outs[i]); err != nil {
			return err
		}
	}
	return nil
}
