package kafkabroker

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// A topic that cannot be written waits longer with each time, and is told of once. What was written to it since forgets that: the
// next time is a first one again, and others are not held up by it.
func TestBlocksEndWithAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDestinations(nil, false)
		block := func(topic string, first bool, wait time.Duration) {
			t.Helper()
			var e *outputError
			if err := d.block(topic, errors.New("no leader")); !errors.As(err, &e) || e.first != first {
				t.Errorf("%v, first: %v; want %v", err, e.first, first)
			}
			if time.Sleep(wait - time.Millisecond); d.blocked() == nil || !d.blocked()(topic) {
				t.Errorf("%s does not wait for %v", topic, wait)
			}
			if time.Sleep(time.Millisecond); d.blocked() != nil {
				t.Errorf("%s waits for longer than %v", topic, wait)
			}
		}
		block("a", true, firstBlock)
		block("a", false, 2*firstBlock)
		block("b", true, firstBlock)
		d.written([]*broker.Outgoing{{Topic: "c"}, {Topic: "a"}})
		block("a", true, firstBlock)
		block("b", false, 2*firstBlock)
	})
}

// A topic that refuses what is compressed goes on without compression, until it refuses the same without it, too: then something
// else is wrong, as a record without a key, and what follows is compressed again.
func TestCompressionIsNotWhy(t *testing.T) {
	for _, tc := range []struct {
		name  string
		codes []kafka.Error // of a batch that is compressed as the topic is by then
		want  bool
	}{
		{"nothing was refused", nil, true},
		{"compression is refused", []kafka.Error{kafka.UnsupportedCompressionType}, false},
		{"a record is", []kafka.Error{kafka.InvalidRecord}, false},
		{"and is without compression", []kafka.Error{kafka.InvalidRecord, kafka.InvalidRecord}, true},
		{"and again", []kafka.Error{kafka.InvalidRecord, kafka.InvalidRecord, kafka.InvalidRecord}, false},
		{"and something else is without compression", []kafka.Error{kafka.InvalidRecord, kafka.NotEnoughReplicas}, false},
	} {
		d := newDestinations(nil, true)
		for _, code := range tc.codes {
			b := &outBatch{partitionID: partitionID{"t", 0}, n: 1}
			if d.compresses("t") {
				b.codec = codecSnappy
			}
			_ = d.refused(&producedError{"t", b, code})
		}
		if got := d.compresses("t"); got != tc.want {
			t.Errorf("%s: compressed %v, want %v", tc.name, got, tc.want)
		}
	}
}

// A topic whose leader says that the last transaction is being written out has refused nothing (transaction version 2): it is not
// the one to wait, and where that transaction is stuck, it waits as long only as one that has taken its end.
func TestConcurrentBlocksNoTopic(t *testing.T) {
	d, began := newDestinations(nil, false), time.Now()
	b := &outBatch{partitionID: partitionID{"t", 0}, n: 1}
	err := d.refused(&producedError{"t", b, fmt.Errorf("t/0: %w", codeConcurrent)})
	var topic *outputError
	if errors.As(err, &topic) || codeOf(err) != codeConcurrent || d.blocked() != nil {
		t.Errorf("refused: %v; topics wait: %v", err, d.blocked() != nil)
	}
	d.hold(nil, []string{"t"})
	if until := d.stuck[0].until; until.After(began.Add(stuckMost / 2)) {
		t.Errorf("it waits for %v", until.Sub(began))
	}
}

// A topic that refused outputs without a key takes none if it is compacted, or if nobody may tell us. One that is not has other
// reasons, and its outputs wait.
func TestLearnKeyed(t *testing.T) {
	for policy, c := range map[string]struct {
		code int16
		want bool
	}{"compact": {0, true}, "compact,delete": {0, true}, "delete": {0, false},
		"hidden": {kerr.TopicAuthorizationFailed.Code, true}, "down": {kerr.CoordinatorNotAvailable.Code, false}} {
		t.Run(policy, func(t *testing.T) {
			ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "transactional")
			ts.cluster.ControlKey(keyDescribeConfigs, func(req kmsg.Request) (kmsg.Response, error, bool) {
				r := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
				rr := kmsg.NewDescribeConfigsResponseResource()
				rr.ErrorCode = c.code
				rr.Configs = append(rr.Configs, kmsg.DescribeConfigsResponseResourceConfig{Name: policySetting, Value: &policy})
				r.Resources = append(r.Resources, rr)
				return r, nil, true
			})
			k, err := ts.config(ts.net.link()).withDefaults().connect()
			if err != nil {
				t.Fatal(err)
			}
			defer k.transport.CloseIdleConnections()
			d := newDestinations(k, false)
			_ = d.block("t", errors.New("refused"))
			if got := d.learnKeyed(t.Context(), "t"); got != c.want {
				t.Errorf("it takes none without a key: %v", got)
			}
			if refused := d.demands.refuse(&broker.Outgoing{Topic: "t"}) != nil; refused != c.want || (d.blocked() == nil) != c.want {
				t.Errorf("an output without a key is refused: %v; the others wait: %v", refused, d.blocked() != nil)
			}
		})
	}
}
