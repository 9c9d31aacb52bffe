package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/integration/sim/memnet"
	"github.com/longshoremq/longshore/internal/dialer"
)

func init() {
	ofGroup := "who has a partition is the group's to say: join, leave, stop and steal move them"
	kinds = append(kinds, Kind{
		Name: "kafka", Late: true, Heavy: 10,
		Cannot: map[What]string{
			Revoke: ofGroup, Bounce: ofGroup,
			Again:  "a reader chooses what it reads: Kafka sends nothing again",
			Forget: "a commit that was answered is kept",
		},
		New: func(t testing.TB, s Schedule) World { return newKafkaWorld(t, s) },
	})
}

// A kafkaWorld is a cluster of kfake, reached over pipes.
type kafkaWorld struct {
	testing.TB
	schedule Schedule
	weather
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
	if slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Fault.What == Restart }) {
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
	w.log = kafkaLog{w: w, read: map[string][]broker.Message{}}
	w.reaper = w.reap()
	return w
}

// newCluster starts the brokers, at the same addresses each time.
func (w *kafkaWorld) newCluster() *kfake.Cluster {
	opts := []kfake.Opt{kfake.ListenFn(w.net.Listen), kfake.GroupMinSessionTimeout(50 * time.Millisecond),
		kfake.SeedTopics(int32(w.schedule.Settings.Partitions), w.schedule.Inputs()...), kfake.SeedTopics(1, w.schedule.Outputs()...)}
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
	return c
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
func (w *kafkaWorld) Produce(topic string, partition int, key, value []byte) error {
	defer w.look()
	r := &kgo.Record{Topic: topic, Partition: int32(partition), Key: key, Value: value}
	if err := w.client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
		return fmt.Errorf("producing to %s/%d: %w", topic, partition, err)
	}
	return nil
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
		told := w.brokers().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: oneOf(w.rnd, commitErrors), Count: f.N})
		return told.Remove, nil
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
	produceErrors = []*kerr.Error{kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas,
		kerr.NotEnoughReplicasAfterAppend}
)

// publishes says whether a request is one of a process's publisher. Those of the world go to the inputs.
func (w *kafkaWorld) publishes(req kmsg.Request) bool {
	r, ok := req.(*kmsg.ProduceRequest)
	return ok && !slices.ContainsFunc(r.Topics, func(t kmsg.ProduceRequestTopic) bool {
		return t.Topic == "" || slices.Contains(w.schedule.Inputs(), t.Topic)
	})
}

// steal expels the owner of an input's partition from its group. It learns that at its next heartbeat or commit.
func (w *kafkaWorld) steal(n int) error {
	inputs := w.schedule.Inputs()
	topic := inputs[n%len(inputs)]
	partition := int32(n / len(inputs) % w.schedule.Settings.Partitions)
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

// lead moves a partition to another node, and each third time the groups' coordinators, too.
func (w *kafkaWorld) lead(n int) error {
	c, inputs := w.brokers(), w.schedule.Inputs()
	topic := inputs[n%len(inputs)]
	partition := int32(n / len(inputs) % w.schedule.Settings.Partitions)
	if n%3 == 0 {
		c.RehashCoordinators()
	}
	return c.MoveTopicPartition(topic, partition, (c.LeaderFor(topic, partition)+1)%kafkaNodes)
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

// Unsettled implements World. What is finished beyond a committed offset counts: at the end there is no such thing.
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

// Floors implements World.
func (w *kafkaWorld) Floors() map[string][]int64 { return w.floors }

// Close implements World.
func (w *kafkaWorld) Close() {
	w.reaper.end()
	w.client.Close()
	w.brokers().Close()
}

// A kafkaProcess is a process's sources and publishers on Kafka.
type kafkaProcess struct {
	sockets
	w    *kafkaWorld
	name string
}

// kafkaRequest is the processes' RequestTimeout.
const kafkaRequest = 2 * time.Second

// rebalanceTimeout is the processes'.
func (w *kafkaWorld) rebalanceTimeout() time.Duration {
	return 2*time.Duration(w.schedule.Settings.RevokeWait) + time.Duration(w.schedule.Settings.Lease)
}

func (p *kafkaProcess) connection() kafkabroker.Connection {
	c := kafkabroker.Connection{Brokers: p.w.addresses(), ClientID: p.name, DialTimeout: time.Second, RequestTimeout: kafkaRequest}
	dialer.Use(&c, p.host.Dial)
	return c
}

// Source implements Process.
func (p *kafkaProcess) Source(s Subscription) (broker.Source, error) {
	p.w.mu.Lock()
	p.w.groups[s.Group] = s.Topics
	p.w.mu.Unlock()
	settings, dice := p.w.schedule.Settings, rand.New(rand.NewPCG(p.w.schedule.Seed, 13)) // the same for all processes
	cfg := kafkabroker.Config{
		Connection: p.connection(), Group: s.Group, Topics: s.Topics,
		SessionTimeout: time.Duration(settings.Lease), HeartbeatInterval: time.Duration(settings.Lease) / 10,
		RevokeWait: time.Duration(settings.RevokeWait), RebalanceTimeout: p.w.rebalanceTimeout(), CommitInterval: settleWithin / 2,
		Balancer: oneOf(dice, []string{"sticky", "sticky", "sticky", "range", "roundrobin"}),
	}
	if dice.IntN(5) == 0 {
		cfg.InstanceID = p.name
	}
	return kafkabroker.NewSource(cfg)
}

// Publisher implements Process.
func (p *kafkaProcess) Publisher() (broker.Publisher, error) {
	return kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: p.connection()})
}

// Close implements Process.
func (p *kafkaProcess) Close() { p.host.Kill() }

func (p *kafkaProcess) do(f Fault) (undo func(), err error) {
	if f.What == CutNode {
		as := p.w.addresses()
		return p.cut(f, memnet.Both, as[f.N%len(as)]), nil
	}
	return p.sockets.do(f)
}

// A kafkaLog reads what topics have.
type kafkaLog struct {
	w    *kafkaWorld
	read map[string][]broker.Message
}

// messages reads what came since it was last asked.
func (l *kafkaLog) messages(topic string) ([]broker.Message, error) {
	next, high := map[int32]int64{}, map[int32]int64{}
	for _, m := range l.read[topic] {
		next[m.Partition] = m.Offset + 1
	}
	from := map[int32]kgo.Offset{}
	for _, p := range l.w.brokers().PartitionInfos(topic) {
		if next[p.Partition] < p.HighWatermark {
			from[p.Partition], high[p.Partition] = kgo.NewOffset().At(next[p.Partition]), p.HighWatermark
		}
	}
	if len(from) == 0 {
		return l.read[topic], nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.w.addresses()...), kgo.Dialer(l.w.net.Host(memnet.HostConfig{}).Dial),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for len(high) > 0 {
		fetches := cl.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("reading %s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			m := broker.Message{Topic: topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
			l.read[topic] = append(l.read[topic], m)
			if r.Offset+1 >= high[r.Partition] {
				delete(high, r.Partition)
			}
		})
	}
	return l.read[topic], nil
}
