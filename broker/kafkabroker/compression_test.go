package kafkabroker

import (
	"bytes"
	"sync"
	"testing"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// A codecWatch notes with which codecs batches were sent, and refuses those that it was told to.
type codecWatch struct {
	mu      sync.Mutex
	seen    []byte
	refuses bool
}

func (w *codecWatch) see(req kmsg.Request) (kmsg.Response, error, bool) {
	r := req.(*kmsg.ProduceRequest)
	if r.TransactionID == nil {
		return nil, nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	codec := r.Topics[0].Partitions[0].Records[atAttrs+1] & attrCodec
	w.seen = append(w.seen, codec)
	if codec == 0 || !w.refuses {
		return nil, nil, false
	}
	answer := r.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range r.Topics {
		at := kmsg.NewProduceResponseTopic()
		at.Topic, at.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			to := kmsg.NewProduceResponseTopicPartition()
			to.Partition, to.ErrorCode = p.Partition, int16(kafka.UnsupportedCompressionType)
			at.Partitions = append(at.Partitions, to)
		}
		answer.Topics = append(answer.Topics, at)
	}
	return answer, nil, true
}

// TestCompressionOfOutputs: they are compressed where that is wanted, and go without to a topic whose broker refuses it.
func TestCompressionOfOutputs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, compression string
		refuses           bool
		want              []byte
	}{
		{"default", "", false, []byte{codecSnappy}},
		{"none", "none", false, []byte{0}},
		{"refused", "snappy", true, []byte{codecSnappy, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "sticky")
			w := &codecWatch{refuses: c.refuses}
			ts.cluster.ControlKey(keyProduce, func(req kmsg.Request) (kmsg.Response, error, bool) {
				ts.cluster.KeepControl()
				return w.see(req)
			})
			cfg := ts.config(ts.net.link())
			cfg.Transactional, cfg.Compression = true, c.compression
			s, err := NewSource(cfg)
			if err != nil {
				t.Fatal(err)
			}
			r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true,
				out: make(chan broker.Message, 10)}
			r.open(t)
			ts.put(t, ts.topics[0], 0, 1)
			m := <-r.out
			value := bytes.Repeat([]byte("a"), 10_000)
			if err := s.AckEmitting(m.Claim, []broker.Emission{{Tokens: []uint64{m.Token},
				Outs: []broker.Outgoing{{Topic: ts.outputs, Value: value}}}}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is stored", func() bool {
				ms := ts.stored(t, ts.outputs)
				return len(ms) == 1 && bytes.Equal(ms[0].Value, value)
			})
			w.mu.Lock()
			defer w.mu.Unlock()
			if !bytes.Equal(w.seen, c.want) {
				t.Errorf("sent with the codecs %v, want %v", w.seen, c.want)
			}
			if c.refuses {
				r.told(t, broker.Warning, "ompression")
			} else if e, said := r.event(broker.Warning, "ompression"); said {
				t.Errorf("a warning: %v", e.Err)
			}
		})
	}
}
