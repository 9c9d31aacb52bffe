package kafkabroker

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// realBrokers are those of a real Kafka: KAFKA_BROKERS, or one that is started for the tests. Who asks for neither gets a skip.
// Who does gets one too where no Kafka can be had, and with LONGSHORE_REAL a failure.
func realBrokers(t testing.TB) []string {
	t.Helper()
	if !realWanted() {
		t.Skip(notWanted)
	}
	return sharedKafka(t)
}

const notWanted = "NO REAL KAFKA: LONGSHORE_KAFKA=1 starts one, KAFKA_BROKERS=host:port,... names one"

// realWanted says whether tests go to a Kafka. LONGSHORE_REAL alone only says that where they do it has to be a real one.
func realWanted() bool { return os.Getenv("LONGSHORE_KAFKA") != "" || os.Getenv("KAFKA_BROKERS") != "" }

// TestRealWanted is about the tests: what CI runs on each change must start no Kafka.
func TestRealWanted(t *testing.T) {
	for _, tc := range []struct {
		real, kafka, brokers string
		want                 bool
	}{{}, {real: "1"}, {kafka: "1", want: true}, {real: "1", kafka: "1", want: true}, {brokers: "127.0.0.1:1", want: true}} {
		t.Setenv("LONGSHORE_REAL", tc.real)
		t.Setenv("LONGSHORE_KAFKA", tc.kafka)
		t.Setenv("KAFKA_BROKERS", tc.brokers)
		if realWanted() != tc.want {
			t.Errorf("%+v: realWanted says %v", tc, !tc.want)
		}
	}
}

// realKafka is a real Kafka with a fresh topic.
func realKafka(t *testing.T, partitions int32) (admin *kgo.Client, brokers []string, topic string) {
	t.Helper()
	ts := realSystem(t, brokertest.Setup{Topics: 1, Partitions: int(partitions)}, "sticky")
	return ts.admin, ts.brokers, ts.topics[0]
}

// realLease is the shortest session timeout that the brokers grant, and not less than a second: the broker is another process,
// and pauses.
func realLease(t testing.TB) time.Duration {
	t.Helper()
	ts := plainTestSystem(brokertest.Setup{}, "sticky", 0)
	ts.brokers = realBrokers(t)
	ts.connect(t)
	brokers := ask(t, ts.admin, kmsg.NewPtrMetadataRequest(), func(*kmsg.MetadataResponse) int16 { return 0 }).Brokers
	name := "group.min.session.timeout.ms"
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName, rr.ConfigNames = kmsg.ConfigResourceTypeBroker, fmt.Sprint(brokers[0].NodeID), []string{name}
	req.Resources = append(req.Resources, rr)
	r := ask(t, ts.admin, req, func(r *kmsg.DescribeConfigsResponse) int16 { return r.Resources[0].ErrorCode })
	var ms int
	for _, c := range r.Resources[0].Configs {
		if c.Name == name && c.Value != nil {
			if _, err := fmt.Sscan(*c.Value, &ms); err != nil {
				t.Fatal(err)
			}
		}
	}
	return max(time.Second, time.Duration(ms)*time.Millisecond)
}

// realProbe asks a real Kafka to write a record down.
func realProbe(t testing.TB) func(context.Context) error {
	t.Helper()
	ts := plainTestSystem(brokertest.Setup{}, "sticky", 0)
	ts.brokers = realBrokers(t)
	ts.connect(t)
	topic := fmt.Sprintf("probe-%d", time.Now().UnixNano())
	createTopic(t, ts.admin, topic, 1)
	t.Cleanup(func() { deleteTopic(t, ts.admin, topic) })
	return func(ctx context.Context) error {
		return ts.admin.ProduceSync(ctx, &kgo.Record{Topic: topic}).FirstErr()
	}
}

// realSystem is a system with topics and a group of its own on a real Kafka.
func realSystem(t testing.TB, s brokertest.Setup, balancer string) *testSystem {
	t.Helper()
	ts := plainTestSystem(s, balancer, realLease(t))
	ts.brokers = realBrokers(t)
	ts.connect(t)
	ts.group = fmt.Sprintf("longshore-%d", time.Now().UnixNano())
	ts.awaitCoordinator(t)
	for i := range s.Topics {
		topic := fmt.Sprintf("%s-%d", ts.group, i)
		createTopic(t, ts.admin, topic, ts.parts)
		ts.topics = append(ts.topics, topic)
		t.Cleanup(func() { deleteTopic(t, ts.admin, topic) })
	}
	ts.outputs = ts.group + "-outputs"
	createTopic(t, ts.admin, ts.outputs, 1)
	t.Cleanup(func() { deleteTopic(t, ts.admin, ts.outputs) })
	return ts
}

// onEach runs a test on a cluster in this process and on a real one.
func onEach(t *testing.T, partitions int, test func(t *testing.T, ts *testSystem)) {
	setup := brokertest.Setup{Topics: 1, Partitions: partitions}
	t.Run("fake", func(t *testing.T) { test(t, fakeSystem(t, setup, "sticky")) })
	t.Run("real", func(t *testing.T) { test(t, realSystem(t, setup, "sticky")) })
}

// onEachProtocol is onEach with both protocols of groups.
func onEachProtocol(t *testing.T, partitions int, test func(t *testing.T, ts *testSystem)) {
	onEach(t, partitions, test)
	t.Run("consumer", func(t *testing.T) { onConsumer(t, partitions, test) })
}

// onConsumer is onEach with the consumer protocol.
func onConsumer(t *testing.T, partitions int, test func(t *testing.T, ts *testSystem)) {
	setup := brokertest.Setup{Topics: 1, Partitions: partitions}
	t.Run("fake", func(t *testing.T) { test(t, fakeSystem(t, setup, "consumer")) })
	t.Run("real", func(t *testing.T) { test(t, realSystem(t, setup, "consumer")) })
}

// awaitCoordinator waits for one: the first group of a fresh Kafka has none until the topic of commits is made.
func (ts *testSystem) awaitCoordinator(t testing.TB) {
	t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{ts.group}
	eventually(t, "the group has a coordinator", func() bool {
		shard := ts.admin.RequestSharded(context.Background(), req)[0]
		if shard.Err != nil {
			return false
		}
		r := shard.Resp.(*kmsg.FindCoordinatorResponse)
		return r.ErrorCode == 0 && len(r.Coordinators) == 1 && r.Coordinators[0].ErrorCode == 0
	})
}

func (ts *testSystem) realProgress(t testing.TB, topic string) (ps []progressOf) {
	t.Helper()
	at := committedOf(t, ts.admin, ts.group, topic, ts.parts)
	starts := listOffsets(t, ts.admin, topic, ts.parts, timeStart)
	for no, end := range listOffsets(t, ts.admin, topic, ts.parts, timeEnd) {
		ps = append(ps, progressOf{start: starts[no], end: end, committed: at[no].offset, metadata: at[no].metadata})
	}
	return ps
}

// TestReal proves on Apache Kafka that members come and go under load with nothing lost, nothing twice, and everything committed;
// in each protocol.
func TestReal(t *testing.T) {
	for balancer := range schemes {
		t.Run(balancer, func(t *testing.T) {
			const partitions, n = 8, 20_000
			admin, brokers, topic := realKafka(t, partitions)
			cfg := Config{Connection: Connection{Brokers: brokers}, Group: topic, Topics: []string{topic}, Balancer: balancer,
				SessionTimeout: 3 * time.Second, HeartbeatInterval: 200 * time.Millisecond, CommitInterval: 200 * time.Millisecond}
			runners := []*runner{startRunner(t, cfg)}
			for i := range n {
				switch i {
				case n / 4, n / 2:
					runners = append(runners, startRunner(t, cfg))
				case 3 * n / 4:
					runners[0].close()
				}
				admin.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: []byte(fmt.Sprint(i))},
					nil)
				if i%100 == 0 {
					time.Sleep(5 * time.Millisecond)
				}
			}
			if err := admin.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "everything is committed", func() bool { return committedOn(t, admin, topic, topic, partitions) == n })
			seen, twice := make(map[string]int), 0
			for _, r := range runners {
				for v, k := range r.seen() {
					seen[v] += k
				}
			}
			for _, k := range seen {
				twice += k - 1
			}
			if len(seen) != n || twice > 0 {
				t.Errorf("%d of %d messages were seen, %d of them again", len(seen), n, twice)
			}
			for i, r := range runners {
				t.Logf("member %d: %d messages, lag %+v", i, len(r.seen()), r.s.Lag())
			}
		})
	}
}

// TestRealRecreated proves on Apache Kafka that a topic which is made anew under a running source is read from its beginning.
func TestRealRecreated(t *testing.T) {
	admin, brokers, topic := realKafka(t, 1)
	r := startRunner(t, Config{Connection: Connection{Brokers: brokers}, Group: topic, Topics: []string{topic}})
	put := func(from, n int) (want []string) {
		for i := from; i < from+n; i++ {
			want = append(want, fmt.Sprint(i))
			if err := admin.ProduceSync(context.Background(),
				&kgo.Record{Topic: topic, Value: []byte(want[len(want)-1])}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		return want
	}
	want := put(0, 50)
	eventually(t, "the first messages came", func() bool { return r.has(want) })
	deleteTopic(t, admin, topic)
	createTopic(t, admin, topic, 1)
	want = put(100, 80) // more than were read of the old one
	eventually(t, "all of the new topic came", func() bool { return r.has(want) })
}

// TestRealRecreatedUnattended: a topic is made anew while no process of its group runs. Kafka deletes with it what the group had
// committed there, so nothing tells it from one that the group never had, and Start decides: docs/kafka.md says so.
func TestRealRecreatedUnattended(t *testing.T) {
	admin, brokers, topic := realKafka(t, 1)
	cfg := Config{Connection: Connection{Brokers: brokers}, Group: topic, Topics: []string{topic}, Start: Start{At: "latest"}}
	put := func(value string) {
		if err := admin.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	begun := func() bool { return committedOf(t, admin, topic, topic, 1)[0].offset >= 0 }

	r := startRunner(t, cfg)
	eventually(t, "it has begun", begun)
	r.close()
	if !begun() {
		t.Fatal("nothing is committed after the stop")
	}
	deleteTopic(t, admin, topic)
	createTopic(t, admin, topic, 1)
	eventually(t, "nothing is committed of a topic that is gone", func() bool { return !begun() })
	put("while none ran")

	r = startRunner(t, cfg)
	r.told(t, broker.Notice, "no committed offset")
	eventually(t, "it has begun anew", begun)
	put("while it ran")
	eventually(t, "what came while it ran is there", func() bool { return r.has([]string{"while it ran"}) })
	if r.has([]string{"while none ran"}) {
		t.Error("what came while none ran is there: docs/kafka.md says that latest skips it")
	}
}

// TestRealCarriedOffsets: a tool brings a group's offsets to the topic of the same name in another cluster, as MirrorMaker 2
// does, and our metadata with them, which names the old topic. At the same offset that is a topic made anew, and all of it is
// read; set once more, without metadata, it goes on there. docs/kafka.md says so.
func TestRealCarriedOffsets(t *testing.T) {
	for name, tc := range map[string]struct {
		metadata bool
		again    int // of what was handled
	}{"as it was": {true, 20}, "set once more": {false, 0}} {
		t.Run(name, func(t *testing.T) {
			admin, brokers, topic := realKafka(t, 1)
			cfg := Config{Connection: Connection{Brokers: brokers}, Group: topic, Topics: []string{topic}}
			put := func(from, to int) (values []string) {
				for i := from; i < to; i++ {
					values = append(values, fmt.Sprint(i))
					if err := admin.ProduceSync(context.Background(),
						&kgo.Record{Topic: topic, Value: []byte(values[i-from])}).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				return values
			}
			at := func() position { return committedOf(t, admin, topic, topic, 1)[0] }
			old := put(0, 20)
			r := startRunner(t, cfg)
			eventually(t, "all came", func() bool { return r.has(old) })
			r.close()
			carried := at()
			if carried.offset != 20 || carried.metadata == "" {
				t.Fatalf("committed is %+v", carried)
			}
			deleteTopic(t, admin, topic)
			createTopic(t, admin, topic, 1)
			put(0, 20)
			eventually(t, "the other cluster has nothing of the group", func() bool { return at().offset < 0 })
			o := kadm.Offset{Topic: topic, At: carried.offset, LeaderEpoch: -1}
			if tc.metadata {
				o.Metadata = carried.metadata
			}
			if err := kadm.NewClient(admin).CommitAllOffsets(t.Context(), topic,
				kadm.Offsets{topic: {0: o}}); err != nil {
				t.Fatal(err)
			}
			r = startRunner(t, cfg)
			due := put(20, 25)
			eventually(t, "what is due came", func() bool { return r.has(due) })
			seen := r.seen()
			again := 0
			for _, v := range old {
				again += seen[v]
			}
			if again != tc.again {
				t.Errorf("%d of 20 were handled again, want %d", again, tc.again)
			}
		})
	}
}
