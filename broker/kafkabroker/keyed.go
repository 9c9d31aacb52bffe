package kafkabroker

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// keyedTopics are topics that refused an output without a key, for they are compacted (destinations.learnKeyed). Safe for
// concurrent use.
type keyedTopics struct {
	until atomic.Pointer[map[string]time.Time] // of each, when it is tried again; never written to. nil: there are none
}

// keyedFor is for how long outputs without a key are refused: the topic may be set up otherwise by then.
const keyedFor = 10 * time.Minute

func (k *keyedTopics) none() bool { return k.until.Load() == nil }

// add has one caller at a time.
func (k *keyedTopics) add(topic string, now time.Time) {
	all := make(map[string]time.Time)
	if was := k.until.Load(); was != nil && len(*was) < mostLearned {
		maps.Copy(all, *was)
	}
	maps.DeleteFunc(all, func(_ string, until time.Time) bool { return !now.Before(until) })
	all[topic] = now.Add(keyedFor)
	k.until.Store(&all)
}

// refuse is nil where an output may be stored.
func (k *keyedTopics) refuse(o *broker.Outgoing) error {
	all := k.until.Load()
	if all == nil || o.Key != nil {
		return nil
	}
	if until, keyed := (*all)[o.Topic]; !keyed || !time.Now().Before(until) {
		return nil
	}
	return fmt.Errorf("kafkabroker: topic %s takes no message without a key (INVALID_RECORD; is it compacted?): %w", o.Topic,
		broker.ErrRefused)
}

// refuseAny is nil where all of them may.
func (k *keyedTopics) refuseAny(outs []broker.Outgoing) error {
	for i := range outs {
		if err := k.refuse(&outs[i]); err != nil {
			return err
		}
	}
	return nil
}
