package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/integration/sim/memnet"
)

func init() {
	ofGroup := "who has a partition is the group's to say: join, leave, stop and steal move them"
	kinds = append(kinds, Kind{
		Name: "kafka", Late: true, Heavy: 10, Assigns: true, Shares: true, Suspects: true, Asked: time.Second,
		Cannot: map[What]string{
			Revoke: ofGroup, Bounce: ofGroup,
			Again:  "a reader chooses what it reads: Kafka sends nothing again",
			Forget: "a commit that was answered is kept",
			Edit:   "the broker has no settings of a group",
		},
		New: func(t testing.TB, s Schedule) World { return newKafkaWorld(t, s) },
	})
}

// A kafkaWorld is a cluster of kfake, reached over pipes.
type kafkaWorld struct {
	testing.TB
	schedule Schedule
	weather
	shelf
	rnd    *rand.Rand
	client *kgo.Client // no fault is in its way
	admin  *kadm.Client
	groups map[string][]string // the topics of each
	log    kafkaLog
	floors map[string][]int64
	dir    string // of what a restart keeps; empty: nothing does

	mu      sync.Mutex // cluster is seen by the reaper, too
	cluster *kfake.Cluster
	reaper  *reaper
}

// kafkaNodes is how many brokers there are.
const kafkaNodes = 2

func newKafkaWorld(t testing.TB, s Schedule) *kafkaWorld {
	w := &kafkaWorld{TB: t, schedule: s, weather: weather{net: memnet.New()}, rnd: rand.New(rand.NewPCG(s.Seed, 11)),
		groups: map[string][]string{}, floors: map[string][]int64{}}
	if s.has(Restart) {
		w.dir = t.TempDir()
	}
	w.cluster = w.newCluster()
	var err error
	w.client, err = kgo.NewClient(kgo.SeedBrokers(w.addresses()...), kgo.Dialer(w.net.Host(memnet.HostConfig{}).Dial),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(20*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }))
	if err != nil {
		t.Fatal(err)
	}
	w.admin = kadm.NewClient(w.client)
	w.log = kafkaLog{w: w, read: map[string][]broker.Message{}, next: map[string]map[int32]int64{}}
	w.reaper = w.reap()
	return w
}

// newCluster starts the brokers, at the same addresses each time.
func (w *kafkaWorld) newCluster() *kfake.Cluster {
	opts := []kfake.Opt{kfake.ListenFn(w.net.Listen), kfake.GroupMinSessionTimeout(50 * time.Millisecond),
		kfake.SeedTopics(int32(w.schedule.Settings.Partitions), w.schedule.Inputs()...)}
	for _, topic := range w.schedule.there() {
		opts = append(opts, kfake.SeedTopics(int32(w.schedule.partitionsOf(topic)), topic))
	}
	if w.dir != "" {
		opts = append(opts, kfake.DataDir(w.dir))
	}
	var ports []int
	for i := range kafkaNodes {
		ports = append(ports, 9092+i)
	}
	c, err := kfake.NewCluster(append(opts, kfake.Ports(ports...))...)
	if err != nil {
		w.Fatal(err)
	}
	// An answer that is full tells no aborted transactions of the partition at which it is cut off, and what was aborted there would
	// be handed out. So no answer is: each partition has a limit of its own.
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req.(*kmsg.FetchRequest).MaxBytes = math.MaxInt32
		return nil, nil, false
	})
	c.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return w.settingsOf(req.(*kmsg.DescribeConfigsRequest)), nil, true
	})
	return c
}

// settingsOf are a group's: kfake does not tell what tells Kafka 4.3, though it checks commits as that does. Commits in
// transactions it checks as Kafka 4.2 does: one epoch for all partitions, the member's newest.
func (w *kafkaWorld) settingsOf(req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for _, of := range req.Resources {
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName = of.ResourceType, of.ResourceName
		names := []string{groupSession}
		if w.schedule.Settings.Emits == 0 {
			names = append(names, "consumer.assignment.interval.ms")
		}
		for _, name := range names {
			c := kmsg.NewDescribeConfigsResponseResourceConfig()
			c.Name, c.Value = name, kmsg.StringPtr(w.session())
			r.Configs = append(r.Configs, c)
		}
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}

// groupSession is the setting of a group to which its brokers assign partitions.
const groupSession = "consumer.session.timeout.ms"

func (w *kafkaWorld) session() string {
	return fmt.Sprint(time.Duration(w.schedule.Settings.Lease).Milliseconds())
}

func (w *kafkaWorld) addresses() (as []string) {
	for i := range kafkaNodes {
		as = append(as, net.JoinHostPort("127.0.0.1", fmt.Sprint(9092+i)))
	}
	return as
}

// groupNames are those that somebody has joined.
func (w *kafkaWorld) groupNames() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.groups))
}

func (w *kafkaWorld) brokers() *kfake.Cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cluster
}

// Join implements World.
func (w *kafkaWorld) Join(name string) Process {
	return &kafkaProcess{sockets: sockets{w.join(memnet.HostConfig{})}, w: w, name: name}
}

// Produce implements World.
func (w *kafkaWorld) Produce(topic string, partition int, key, value []byte) (int64, error) {
	defer w.look()
	r := &kgo.Record{Topic: topic, Partition: int32(partition), Key: key, Value: value}
	if err := w.client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
		return -1, fmt.Errorf("producing to %s/%d: %w", topic, partition, err)
	}
	w.store(broker.Message{Topic: topic, Partition: r.Partition, Offset: r.Offset, Key: key, Value: value})
	return r.Offset, nil
}

// Do implements World.
func (w *kafkaWorld) Do(f Fault, p Process) (undo func(), err error) {
	defer w.look()
	if p, ok := p.(*kafkaProcess); ok {
		return p.do(f)
	}
	switch f.What {
	case Down:
		return w.down(), nil
	case Delay:
		return w.slow(time.Duration(f.N) * time.Millisecond), nil
	case FailSettles:
		return w.failSettles(f.N), nil
	case FailPublishes:
		told := w.brokers().Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: oneOf(w.rnd, produceErrors), Count: f.N, When: w.publishes,
		})
		return told.Remove, nil
	case Steal:
		return nil, w.steal(f.N)
	case Leader:
		return nil, w.lead(f.N)
	case Restart:
		w.restart()
	case Grow:
		_, err := w.admin.CreatePartitions(context.Background(), f.N, oneOf(w.rnd, w.schedule.Inputs()))
		return nil, err
	case Trim:
		return nil, w.trim(f.N)
	case Make:
		return nil, w.make(w.schedule.made(f))
	case Recreate:
		return nil, w.recreate(f.N)
	default:
		return nil, fmt.Errorf("kfake does not know how to do %q", f.What)
	}
	return nil, nil
}

func oneOf[T any](rnd *rand.Rand, list []T) T { return list[rnd.IntN(len(list))] }

// What a broker may answer that heals.
var (
	commitErrors = []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.CoordinatorNotAvailable,
		kerr.RequestTimedOut, kerr.RebalanceInProgress}
	endErrors = []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.RequestTimedOut,
		kerr.ConcurrentTransactions}
	produceErrors = []*kerr.Error{kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas,
		kerr.NotEnoughReplicasAfterAppend}
)

// failSettles lets the next n commits fail: of offsets, or of transactions.
func (w *kafkaWorld) failSettles(n int) (undo func()) {
	told := kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: oneOf(w.rnd, commitErrors), Count: n}
	switch {
	case w.schedule.Settings.Emits == 0:
	case n%4 == 1:
		told.Keys = []kmsg.Key{kmsg.TxnOffsetCommit}
	case n%4 == 2:
		told.Keys, told.Err = []kmsg.Key{kmsg.EndTxn}, oneOf(w.rnd, endErrors)
	default:
		return w.loseEnds(n)
	}
	return w.brokers().Fault(told).Remove
}

// loseEnds loses the answers to the next n ends of transactions, which are carried out. Whose they are a request does not say, so
// that each process loses its next answer.
func (w *kafkaWorld) loseEnds(n int) (undo func()) {
	hosts := slices.Clone(w.hosts)
	lose := func(answers int) {
		for _, h := range hosts {
			h.LoseAnswers(answers)
		}
	}
	told := w.brokers().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Count: n, Observe: true, When: func(kmsg.Request) bool {
		lose(1)
		return true
	}})
	return func() {
		told.Remove()
		lose(0)
	}
}

// publishes says whether a request is one of a process's publisher. Those of the world go to the inputs.
func (w *kafkaWorld) publishes(req kmsg.Request) bool {
	r, ok := req.(*kmsg.ProduceRequest)
	return ok && !slices.ContainsFunc(r.Topics, func(t kmsg.ProduceRequestTopic) bool {
		return t.Topic == "" || slices.Contains(w.schedule.Inputs(), t.Topic)
	})
}

// steal expels the owner of an input's partition from its group. It learns that at its next heartbeat or commit.
func (w *kafkaWorld) steal(n int) error {
	topic, partition := w.schedule.place(n)
	for group := range w.groups {
		info := w.brokers().GroupInfo(group)
		if info == nil {
			continue
		}
		for _, m := range info.Members {
			if slices.Contains(m.Assignment[topic], partition) {
				return w.expel(group, m.MemberID)
			}
		}
	}
	return nil
}

// expel takes a member out of its group, as its coordinator does when its session is over.
func (w *kafkaWorld) expel(group, member string) error {
	if w.schedule.Settings.Assigned {
		return w.sayLeft(group, member)
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, member
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: member}}
	resp, err := req.RequestWith(context.Background(), w.client)
	if err != nil {
		return fmt.Errorf("expelling %s from group %s: %w", member, group, err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil && !errors.Is(err, kerr.UnknownMemberID) {
		return fmt.Errorf("expelling %s from group %s: %w", member, group, err)
	}
	return nil
}

// sayLeft says for a member that it leaves a group to which the brokers assign partitions.
func (w *kafkaWorld) sayLeft(group, member string) error {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = group, member, -1
	resp, err := req.RequestWith(context.Background(), w.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil && !errors.Is(err, kerr.UnknownMemberID) {
		return fmt.Errorf("expelling %s from group %s: %w", member, group, err)
	}
	return nil
}

// lead moves a partition to another node, and each third time the groups' coordinators, too.
func (w *kafkaWorld) lead(n int) error {
	c := w.brokers()
	topic, partition := w.schedule.place(n)
	if n%3 == 0 {
		c.RehashCoordinators()
	}
	return c.MoveTopicPartition(topic, partition, (c.LeaderFor(topic, partition)+1)%kafkaNodes)
}

// trim lets a partition begin later.
func (w *kafkaWorld) trim(n int) error {
	topic, partition := w.schedule.place(n)
	leaves := newest(n)
	if w.dir != "" { // kfake forgets where a log ends that it restarts without any message
		leaves = max(1, leaves)
	}
	below := w.above(topic, partition, leaves)
	if below == 0 {
		return nil
	}
	err := w.sure(func(ctx context.Context) error {
		var to kadm.Offsets
		to.AddOffset(topic, partition, below, -1)
		resp, err := w.admin.DeleteRecords(ctx, to)
		if err == nil {
			err = resp.Error()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("trimming %s/%d below %d: %w", topic, partition, below, err)
	}
	w.drop(topic, partition, below)
	return nil
}

// make makes an output that was missing.
func (w *kafkaWorld) make(topic string) error {
	err := w.sure(func(ctx context.Context) error {
		_, err := w.admin.CreateTopic(ctx, int32(w.schedule.partitionsOf(topic)), 1, nil, topic)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("making %s: %w", topic, err)
	}
	return nil
}

// recreate deletes a topic and makes it again, with as many partitions.
func (w *kafkaWorld) recreate(n int) error {
	topic, _ := w.schedule.place(n)
	partitions := int32(len(w.brokers().PartitionInfos(topic)))
	err := w.sure(func(ctx context.Context) error {
		_, err := w.admin.DeleteTopic(ctx, topic)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil
		}
		return err
	})
	if err == nil {
		err = w.sure(func(ctx context.Context) error {
			_, err := w.admin.CreateTopic(ctx, partitions, 1, nil, topic)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("making %s anew: %w", topic, err)
	}
	w.client.PurgeTopicsFromClient(topic)
	w.empty(topic)
	return nil
}

// sure asks again while leaders and controllers change.
func (w *kafkaWorld) sure(do func(ctx context.Context) error) (err error) {
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err = do(ctx)
		cancel()
		if err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// restart stops the brokers and starts them again with the same data.
func (w *kafkaWorld) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cluster.Close()
	for _, a := range w.addresses() {
		w.net.Break(a)
	}
	w.cluster = w.newCluster()
	w.reaper.watch(w.cluster)
}

// Messages implements World.
func (w *kafkaWorld) Messages(topic string) ([]broker.Message, error) { return w.log.messages(topic) }

// Unsettled implements World. What is finished beyond a committed offset counts: at the end there is no such thing. So does what
// stands behind an open transaction.
func (w *kafkaWorld) Unsettled() (n int64, where string, err error) {
	w.look()
	var parts []string
	for group, topics := range w.groups {
		info := w.brokers().GroupInfo(group)
		for _, topic := range topics {
			for _, p := range w.brokers().PartitionInfos(topic) {
				from := p.LogStartOffset
				if info != nil {
					if c, ok := info.Commits[topic][p.Partition]; ok {
						from = max(from, c.Offset)
					}
				}
				if from < p.HighWatermark {
					n += p.HighWatermark - from
					parts = append(parts, fmt.Sprintf("%s/%d from %d to %d", topic, p.Partition, from, p.HighWatermark))
				}
			}
		}
		if n > 0 && info != nil {
			parts = append(parts, fmt.Sprintf("group %s is %s", group, info.State))
			for _, m := range info.Members {
				parts = append(parts, fmt.Sprintf("%s has %v", m.ClientID, m.Assignment))
			}
		}
	}
	for _, topic := range w.schedule.Outputs() {
		for _, p := range w.brokers().PartitionInfos(topic) {
			if p.LastStableOffset < p.HighWatermark {
				n += p.HighWatermark - p.LastStableOffset
				parts = append(parts, fmt.Sprintf("a transaction is open in %s/%d at %d", topic, p.Partition, p.LastStableOffset))
			}
		}
	}
	return n, strings.Join(parts, ", "), nil
}

// look notes what is committed.
func (w *kafkaWorld) look() {
	for group := range w.groups {
		info := w.brokers().GroupInfo(group)
		if info == nil {
			continue
		}
		for topic, partitions := range info.Commits {
			for p, c := range partitions {
				key := fmt.Sprintf("%s/%d for %s", topic, p, group)
				if f := w.floors[key]; len(f) == 0 || f[len(f)-1] != c.Offset {
					w.floors[key] = append(f, c.Offset)
				}
			}
		}
	}
}

// Members implements roster. Static ones are left out, for they may come back.
func (w *kafkaWorld) Members() (names []string) {
	for group := range w.groups {
		info := w.brokers().GroupInfo(group)
		if info == nil {
			continue
		}
		for _, m := range info.Members {
			if m.InstanceID == nil {
				names = append(names, m.ClientID)
			}
		}
	}
	return names
}

// Floors implements World.
func (w *kafkaWorld) Floors() map[string][]int64 { return w.floors }

// Close implements World.
func (w *kafkaWorld) Close() {
	w.reaper.end()
	w.client.Close()
	w.brokers().Close()
}
