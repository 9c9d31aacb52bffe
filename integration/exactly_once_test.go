//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest/faultproxy"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// emitterEnv makes the test binary a process that hands messages on from topic to topic: its value is an emitterConfig.
const emitterEnv = "LONGSHORE_TEST_EMITTER"

type emitterConfig struct {
	Brokers        []string
	In, Out, Group string
	Membership     string
	Transactional  bool
	Lease, Timeout time.Duration
}

// emitterMain emits one message for each, in the order of keys; one run in fifty fails after it has emitted.
func emitterMain(arg string) int {
	var c emitterConfig
	if err := json.Unmarshal([]byte(arg), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	at := kafkabroker.Connection{Brokers: c.Brokers, RequestTimeout: 2 * time.Second, DialTimeout: time.Second}
	p, err := kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: at})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	source, err := kafkabroker.NewSource(kafkabroker.Config{
		Connection: at, Group: c.Group, Topics: []string{c.In}, Membership: c.Membership, Transactional: c.Transactional,
		TransactionTimeout: c.Timeout,
		SessionTimeout:     c.Lease, HeartbeatInterval: c.Lease / 10, CommitInterval: 100 * time.Millisecond, CommitMessages: 100,
		RevokeWait: c.Lease, RebalanceTimeout: 5 * c.Lease,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var first sync.Once
	k, err := consumer.New(consumer.Config{
		Source: source, Order: consumer.OrderKey, Pool: consumer.Pool{Min: 64, Max: 64}, DrainTimeout: 3 * time.Second,
		Retry: consumer.Retry{MaxAttempts: 1000, Backoff: consumer.Backoff{Initial: 10 * time.Millisecond,
			Max: 100 * time.Millisecond}},
		Handler: func(ctx context.Context, m *consumer.Message) error {
			time.Sleep(time.Duration(1+rand.IntN(5)) * time.Millisecond)
			if err := consumer.EmitBy(ctx, p, broker.Outgoing{Topic: c.Out, Key: m.Key, Value: m.Value}); err != nil {
				return err
			}
			first.Do(func() { fmt.Println("handled") })
			if rand.IntN(50) == 0 {
				return errors.New("told to fail")
			}
			return nil
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err = errors.Join(k.Run(ctx), p.Close(context.Background()))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// An emitRun is processes that hand a numbered load on, what is done to them, and what came of it.
type emitRun struct {
	t       *testing.T
	cluster *kafkad.Cluster
	c       emitterConfig
	rnd     *rand.Rand
	procs   []*process
	sent    atomic.Int64
}

// emitted is one run's account.
type emitted struct {
	Row           string `json:"row"`
	Membership    string `json:"membership"`
	Transactional bool   `json:"transactional"`
	Messages      int64  `json:"messages"`
	Lost          int    `json:"lost"`
	Twice         int    `json:"twice"`
	Inversions    int    `json:"inversions"` // of outputs of a key
	Aborted       int    `json:"aborted_markers"`
	Kills         int    `json:"sigkills"`
	Terms         int    `json:"sigterms"`
	Stops         int    `json:"sigstops"`
	BrokerKills   int    `json:"broker_kills"`
	BrokerStops   int    `json:"broker_sigstops"`
	LostAnswers   int    `json:"lost_answers"`
}

// TestExactlyOnce: what is emitted from topic to topic is there once, for Kafka's own console consumer, whatever happens to the
// processes, to the brokers, and to answers; and the outputs of a key are in its order. Beside it the plain way shows what the
// harness sees: duplicates.
func TestExactlyOnce(t *testing.T) {
	needsKafka(t)
	t.Run("transactional", func(t *testing.T) {
		a := runEmit(t, true, emitted{
			Kills: lengths(4, 20), Terms: lengths(2, 12), Stops: lengths(1, 3), BrokerKills: lengths(1, 6), BrokerStops: lengths(1, 6),
			LostAnswers: lengths(6, 40),
		})
		if a.Lost > 0 || a.Twice > 0 || a.Inversions > 0 {
			t.Errorf("want each output once, in order: %+v", a)
		}
		if a.Aborted == 0 {
			t.Error("no transaction was aborted: nothing was proved")
		}
	})
	t.Run("plain", func(t *testing.T) {
		a := runEmit(t, false, emitted{Kills: lengths(2, 6)})
		if a.Lost > 0 {
			t.Errorf("lost: %+v", a)
		}
		if a.Twice == 0 {
			t.Error("the plain way shows no duplicates: the harness is blind")
		}
	})
}

func runEmit(t *testing.T, transactional bool, a emitted) emitted {
	// A broker that is killed must not be the only one: on Kafka 4.3 a committed transaction stays open for ever where a partition
	// of it has no leader when the coordinator ends it there (docs/kafka.md, "A transaction that never ends").
	cluster := kafkad.Start(t, kafkad.Config{Nodes: 3})
	if !cluster.Real() {
		t.Skip("NO REAL KAFKA: nothing was tested on one")
	}
	a.Row, a.Membership, a.Transactional = "exactly_once", membership(), transactional
	proxied := make([]string, 0, 1)
	for _, p := range cluster.Proxies() {
		proxied = append(proxied, p.Addr())
	}
	x := &emitRun{t: t, cluster: cluster, rnd: rand.New(rand.NewPCG(rand.Uint64(), 1)), c: emitterConfig{
		Brokers: proxied, In: kafkad.Unique("in"), Out: kafkad.Unique("out"), Group: kafkad.Unique("emit"),
		Membership: membership(), Transactional: transactional,
		Lease: 2 * time.Second, Timeout: 3 * time.Second,
	}}
	group := &kafkaSystem{cluster: cluster, group: x.c.Group}
	group.setSession(t, x.c.Lease)
	t.Cleanup(func() {
		if t.Failed() {
			x.logOpen()
		}
	})
	for _, topic := range []string{x.c.In, x.c.Out} {
		if err := cluster.CreateTopic(t.Context(), topic, 4, nil); err != nil {
			t.Fatal(err)
		}
	}
	loadCtx, endLoad := context.WithCancel(t.Context())
	loaded := make(chan struct{})
	go func() { defer close(loaded); x.load(loadCtx) }()
	x.procs = []*process{x.start(), x.start()}
	for _, p := range x.procs {
		p.says(t, "handled", 1)
	}
	x.trouble(&a)
	// One run in fifty fails after it has emitted: of so many, some are there twice where nothing takes back what was emitted.
	eventually(t, "there is something to judge by", func() bool { return x.sent.Load() >= 1000 })
	endLoad()
	<-loaded
	a.Messages = x.sent.Load()
	eventually(t, "everything is committed", x.settled)
	for _, p := range x.procs {
		if code, _ := p.terminate(t); code != 0 {
			t.Errorf("exit code %d after SIGTERM: %s", code, p.err.tail())
		}
	}
	x.judge(&a)
	report(a)
	return a
}

// load sends numbers, each with one of 200 keys, at 200 a second at most.
func (x *emitRun) load(ctx context.Context) {
	client, err := kgo.NewClient(kgo.SeedBrokers(x.cluster.Brokers()...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		x.t.Error(err)
		return
	}
	defer client.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n := int64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var together []*kgo.Record
		for range 4 {
			together = append(together,
				&kgo.Record{Topic: x.c.In, Key: []byte(strconv.FormatInt(n%200, 10)), Value: []byte(strconv.FormatInt(n, 10))})
			n++
		}
		if err := client.ProduceSync(context.Background(), together...).FirstErr(); err != nil {
			x.t.Errorf("producing: %v", err)
			return
		}
		x.sent.Store(n)
	}
}

func (x *emitRun) start() *process {
	arg, err := json.Marshal(x.c)
	if err != nil {
		x.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		x.t.Fatal(err)
	}
	return startCommand(x.t, exec.Command(exe), emitterEnv+"="+string(arg))
}

// trouble does what a says, in a random order; pauses are part of the fault's timing, never of the verdict.
func (x *emitRun) trouble(a *emitted) {
	var todo []func()
	add := func(n int, do func()) {
		for range n {
			todo = append(todo, do)
		}
	}
	add(a.Kills, func() { x.replace(func(p *process) { p.kill() }) })
	add(a.Terms, func() { x.replace(func(p *process) { p.terminate(x.t) }) })
	add(a.Stops, x.freeze)
	add(a.BrokerKills, x.killBroker)
	add(a.BrokerStops, x.freezeBroker)
	add(a.LostAnswers, x.loseAnswers)
	if a.Terms > 0 {
		add(1, x.thirdMember)
	}
	x.rnd.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	for _, do := range todo {
		time.Sleep(time.Duration(200+x.rnd.IntN(800)) * time.Millisecond)
		do()
	}
	time.Sleep(time.Second)
}

// replace ends one of the processes, and has another take its place.
func (x *emitRun) replace(end func(*process)) {
	i := x.rnd.IntN(len(x.procs))
	end(x.procs[i])
	x.procs[i] = x.start()
	x.procs[i].says(x.t, "handled", 1)
}

// freeze stops a process for twice its session.
func (x *emitRun) freeze() {
	p := x.procs[x.rnd.IntN(len(x.procs))]
	p.signal(x.t, syscall.SIGSTOP)
	time.Sleep(2 * x.c.Lease)
	p.signal(x.t, syscall.SIGCONT)
}

// spareBroker is one that nobody is without.
func (x *emitRun) spareBroker() int {
	eventually(x.t, "all replicas are in sync", func() bool {
		n, err := x.cluster.UnderReplicated(x.t.Context())
		return err == nil && n == 0
	})
	return x.rnd.IntN(len(x.cluster.Brokers()))
}

// freezeBroker stops one for longer than requests wait for it, and than the cluster does (broker.session.timeout.ms). It answers
// what it was sent before and while it stood, when others lead and coordinate what it did, and nobody waits for it any more.
func (x *emitRun) freezeBroker() {
	i := x.spareBroker()
	if err := x.cluster.Freeze(i); err != nil {
		x.t.Fatal(err)
	}
	time.Sleep(4 * time.Second)
	if err := x.cluster.Thaw(i); err != nil {
		x.t.Fatal(err)
	}
}

// killBroker kills one, and starts it again.
func (x *emitRun) killBroker() {
	i := x.spareBroker()
	x.cluster.Kill(i)
	if err := x.cluster.Restart(i); err != nil {
		x.t.Fatal(err)
	}
}

// loseAnswers holds what the brokers answer for a moment, and then cuts all connections: requests arrived, and nobody knows of
// it.
func (x *emitRun) loseAnswers() {
	for _, p := range x.cluster.Proxies() {
		p.Set(faultproxy.ToClient, faultproxy.Shape{Hold: true})
	}
	time.Sleep(time.Duration(20+x.rnd.IntN(150)) * time.Millisecond)
	for _, p := range x.cluster.Proxies() {
		p.Reset()
		p.Heal()
	}
}

func (x *emitRun) thirdMember() {
	p := x.start()
	p.says(x.t, "handled", 1)
	time.Sleep(500 * time.Millisecond)
	p.terminate(x.t)
}

// settled says whether the group has committed the end of each partition.
func (x *emitRun) settled() bool {
	ps, err := x.cluster.DescribeGroup(x.c.Group)
	if err != nil {
		return false
	}
	var committed int64
	for _, p := range ps {
		if p.Topic == x.c.In && p.Committed > 0 {
			committed += p.Committed
		}
	}
	return committed == x.sent.Load()
}

// judge reads the outputs with Kafka's console consumer, which reads what is committed, and the log itself for what was aborted.
func (x *emitRun) judge(a *emitted) {
	x.t.Helper()
	reader, err := x.cluster.StartJavaMember(x.c.Out, kafkad.Unique("reader"), "RangeAssignor",
		map[string]string{"isolation.level": "read_committed"})
	if err != nil {
		x.t.Fatal(err)
	}
	defer reader.Kill()
	last, since := -1, time.Now()
	for time.Since(since) < patience { // as long as anything comes: the reader may be slow
		if n := len(reader.Seen()); n != last {
			last, since = n, time.Now()
		} else if int64(n) >= a.Messages && time.Since(since) > 3*time.Second {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	times := map[string]int{}
	for _, v := range reader.Seen() {
		if times[v]++; times[v] == 2 {
			a.Twice++
		}
	}
	for n := range a.Messages {
		if times[strconv.FormatInt(n, 10)] == 0 {
			a.Lost++
		}
	}
	x.readLog(a)
}

// readLog counts abort markers, and outputs that stand before an earlier one of their key.
func (x *emitRun) readLog(a *emitted) {
	read := func(level kgo.IsolationLevel, do func(*kgo.Record)) {
		client, err := kgo.NewClient(kgo.SeedBrokers(x.cluster.Brokers()...), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
			kgo.ConsumeTopics(x.c.Out), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			x.t.Fatal(err)
		}
		defer client.Close()
		for quiet := 0; quiet < 4; {
			ctx, cancel := context.WithTimeout(x.t.Context(), 500*time.Millisecond)
			fetches := client.PollFetches(ctx)
			cancel()
			if fetches.NumRecords() == 0 {
				quiet++
				continue
			}
			quiet = 0
			fetches.EachRecord(do)
		}
	}
	read(kgo.ReadUncommitted(), func(r *kgo.Record) {
		if r.Attrs.IsControl() && len(r.Key) >= 4 && r.Key[3] == 0 {
			a.Aborted++
		}
	})
	high := map[string]int64{}
	n := 0
	defer func() { x.t.Logf("in the log there are %d outputs of transactions that were committed", n) }()
	read(kgo.ReadCommitted(), func(r *kgo.Record) {
		n++
		if r.Attrs.IsControl() {
			return
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(r.Value)), 10, 64)
		if err != nil {
			x.t.Errorf("output %q is no number", r.Value)
			return
		}
		if was, ok := high[string(r.Key)]; ok && n < was {
			a.Inversions++
		}
		high[string(r.Key)] = max(n, high[string(r.Key)])
	})
}

// logOpen logs what stands behind a transaction that is open, for who reads why outputs did not come: partitions whose stable end
// is not their end, the producers with an open transaction there, and what the coordinator says of all transactions.
func (x *emitRun) logOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(x.cluster.Brokers()...))
	if err != nil {
		x.t.Error(err)
		return
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics := []string{x.c.In, x.c.Out, "__consumer_offsets"}
	ends, err := admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		x.t.Error(err)
		return
	}
	stable, err := admin.ListCommittedOffsets(ctx, topics...)
	if err != nil {
		x.t.Error(err)
		return
	}
	behind := kadm.TopicsSet{}
	ends.Each(func(end kadm.ListedOffset) {
		if s, ok := stable.Lookup(end.Topic, end.Partition); ok && s.Offset != end.Offset {
			x.t.Logf("%s/%d: stable to %d of %d", end.Topic, end.Partition, s.Offset, end.Offset)
			behind.Add(end.Topic, end.Partition)
		}
	})
	if producers, err := admin.DescribeProducers(ctx, behind); err != nil {
		x.t.Error(err)
	} else {
		producers.EachProducer(func(p kadm.DescribedProducer) {
			if p.CurrentTxnStartOffset >= 0 {
				x.t.Logf("open since %s: %+v", time.UnixMilli(p.LastTimestamp).UTC().Format(time.TimeOnly), p)
			}
		})
	}
	transactions, err := admin.DescribeTransactions(ctx)
	if err != nil {
		x.t.Error(err)
	}
	transactions.Each(func(d kadm.DescribedTransaction) { x.t.Logf("%+v", d) })
}
