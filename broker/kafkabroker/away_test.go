package kafkabroker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestAwayForAMoment: what asks a broker once, as the commands lag and dlq do, asks again where the broker is away for a moment,
// or where the Transport does not know it yet, for its own look at the brokers came to nothing.
func TestAwayForAMoment(t *testing.T) {
	for name, call := range onceCalls {
		for fault, make := range map[string]func(n *network){
			"restarts":      restart,
			"undiscovered":  func(n *network) { n.breakAnswers(keyMetadata, 3) },
			"answers break": func(n *network) { n.breakAnswers(keyAPIVersions, 3) },
		} {
			t.Run(name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				ts := newTestSystem(t, 1, 1)
				n := &network{}
				make(n)
				at := Connection{Brokers: ts.brokers, dial: n.link().dial, RequestTimeout: 10 * time.Second}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if err := call(ctx, at, ts.topics[0]); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func restart(n *network) {
	n.setDown(true)
	time.AfterFunc(500*time.Millisecond, func() { n.setDown(false) })
}

// onceCalls are what programs call once.
var onceCalls = map[string]func(ctx context.Context, at Connection, topic string) error{
	"LagView": func(ctx context.Context, at Connection, topic string) error {
		v, err := NewLagView(LagViewConfig{Connection: at, Group: testGroup, Topics: []string{topic}})
		if err != nil {
			return err
		}
		defer v.Close()
		lags, err := v.Read(ctx)
		if err == nil {
			err = lags[0].Err
		}
		return err
	},
	"Scan": func(ctx context.Context, at Connection, topic string) error {
		v, err := NewLogView(LogViewConfig{Connection: at})
		if err != nil {
			return err
		}
		defer v.Close()
		_, err = v.Scan(ctx, broker.Scan{Topic: topic}, func(*broker.Message) error { return nil })
		return err
	},
	"Trim": func(ctx context.Context, at Connection, topic string) error {
		v, err := NewLogView(LogViewConfig{Connection: at})
		if err != nil {
			return err
		}
		defer v.Close()
		return v.Trim(ctx, topic, map[int32]int64{0: 0})
	},
	"CreateLog": func(ctx context.Context, at Connection, topic string) error {
		v, err := NewLogView(LogViewConfig{Connection: at})
		if err != nil {
			return err
		}
		defer v.Close()
		return v.CreateLog(ctx, topic+"-journal", topic)
	},
	"CreateTopic": func(ctx context.Context, at Connection, topic string) error {
		a, err := NewAdmin(at)
		if err != nil {
			return err
		}
		defer a.Close()
		return a.CreateTopic(ctx, topic+"-new", 2)
	},
	"DeleteTopic": func(ctx context.Context, at Connection, topic string) error {
		a, err := NewAdmin(at)
		if err != nil {
			return err
		}
		defer a.Close()
		return a.DeleteTopic(ctx, topic)
	},
	"DeleteGroup": func(ctx context.Context, at Connection, _ string) error {
		a, err := NewAdmin(at)
		if err != nil {
			return err
		}
		defer a.Close()
		return a.DeleteGroup(ctx, "none")
	},
}

// TestTrimOfOneTopic: a topic is made anew between two tries to trim it. Nothing of the new one is deleted.
func TestTrimOfOneTopic(t *testing.T) {
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1}, "sticky")
	topic := ts.topics[0]
	ts.produce(t, 0, broker.Outgoing{Topic: topic, Value: []byte("old")})
	ts.cluster.ControlKey(keyDeleteRecords, func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.SleepControl(func() {
			deleteTopic(t, ts.admin, topic)
			createTopic(t, ts.admin, topic, 1)
			ts.produce(t, 0, broker.Outgoing{Topic: topic, Value: []byte("new")})
		})
		r := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
		rp := kmsg.NewDeleteRecordsResponseTopicPartition()
		rp.ErrorCode = kerr.NotLeaderForPartition.Code
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
		r.Topics = append(r.Topics, rt)
		return r, nil, true // the next one is the fake's own
	})
	v, err := NewLogView(LogViewConfig{Connection: ts.config(ts.net.link()).Connection})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := v.Trim(t.Context(), topic, map[int32]int64{0: 1}); !errors.Is(err, errRecreated) {
		t.Errorf("Trim: %v, want that the topic was made anew", err)
	}
	if ms := ts.stored(t, topic); len(ms) != 1 || string(ms[0].Value) != "new" {
		t.Errorf("there is %v, want the new message", ms)
	}
}
