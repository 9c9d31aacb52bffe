//go:build unix

package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/kafkad"
	"github.com/longshoremq/longshore/internal/dialer"
)

// What Kafka's protocol calls the requests.
const (
	produceRequest         = 0
	fetchRequest           = 1
	metadataRequest        = 3
	offsetFetchRequest     = 9
	findCoordinatorRequest = 10
	joinGroupRequest       = 11
	heartbeatRequest       = 12
	syncGroupRequest       = 14
	initProducerIDRequest  = 22
	addPartitionsRequest   = 24
	addOffsetsRequest      = 25
	endTxnRequest          = 26
	txnOffsetCommitRequest = 28
)

// A loss is an answer to be lost: to the which-th request of a kind from then on; or that request itself. A row has its losses
// one after the other.
type loss struct {
	request, which int
	itself         bool
}

var losses = map[string][]loss{
	"produce/1":           {{produceRequest, 1, false}},
	"produce/4":           {{produceRequest, 4, false}},
	"fetch/1":             {{fetchRequest, 1, false}},
	"fetch/4":             {{fetchRequest, 4, false}},
	"metadata/1":          {{metadataRequest, 1, false}},
	"metadata/4":          {{metadataRequest, 4, false}},
	"offset_fetch":        {{offsetFetchRequest, 1, false}},
	"find_coordinator/1":  {{findCoordinatorRequest, 1, false}},
	"find_coordinator/2":  {{findCoordinatorRequest, 2, false}},
	"join":                {{joinGroupRequest, 1, false}},
	"heartbeat":           {{heartbeatRequest, 2, false}},
	"sync":                {{syncGroupRequest, 1, false}},
	"init_producer_id":    {{initProducerIDRequest, 1, false}},
	"add_partitions/1":    {{addPartitionsRequest, 1, false}},
	"add_partitions/4":    {{addPartitionsRequest, 4, false}},
	"add_offsets/1":       {{addOffsetsRequest, 1, false}},
	"add_offsets/4":       {{addOffsetsRequest, 4, false}},
	"txn_offset_commit/1": {{txnOffsetCommitRequest, 1, false}},
	"txn_offset_commit/4": {{txnOffsetCommitRequest, 4, false}},
	"end_txn/1":           {{endTxnRequest, 1, false}},
	"end_txn/2":           {{endTxnRequest, 2, false}},
	"end_txn/4":           {{endTxnRequest, 4, false}},
	// Nobody can tell these from the ones above.
	"end_txn_itself/1":         {{endTxnRequest, 1, true}},
	"end_txn_itself/4":         {{endTxnRequest, 4, true}},
	"end_txn_itself_and_name":  {{endTxnRequest, 2, true}, {endTxnRequest, 1, true}, {initProducerIDRequest, 1, false}},
	"txn_offset_commit_itself": {{txnOffsetCommitRequest, 2, true}},
	"produce_itself":           {{produceRequest, 2, true}},
	// The answers that would say what became of the transaction get lost, too.
	"end_txn_and_producer_id": {{endTxnRequest, 2, false}, {initProducerIDRequest, 1, false}, {initProducerIDRequest, 1, false}},
	"end_txn_and_again":       {{endTxnRequest, 2, false}, {endTxnRequest, 1, true}, {endTxnRequest, 1, false}},
	"end_txn_twice":           {{endTxnRequest, 2, false}, {endTxnRequest, 1, false}, {endTxnRequest, 2, false}},
	"produce_and_producer_id": {{produceRequest, 2, false}, {initProducerIDRequest, 1, false}, {produceRequest, 1, false}},
	"commit_and_end_txn": {{txnOffsetCommitRequest, 2, false}, {endTxnRequest, 1, false}, {endTxnRequest, 1, false},
		{initProducerIDRequest, 1, false}},
}

// TestLostAnswers: a broker does what it is asked, and its answer never arrives, because the connection ends with it. That is
// done to each kind of request, early and late; what is emitted is there once, and in the order of its key.
func TestLostAnswers(t *testing.T) {
	variant(t)
	t.Parallel()
	t.Run("fake", func(t *testing.T) { loseAnswersInTurn(t, kafkad.Fake(t)) })
	t.Run("kafka", func(t *testing.T) {
		needsKafka(t)
		loseAnswersInTurn(t, kafkad.Start(t, kafkad.Config{}))
	})
}

// transactionVersions are how transactions may be spoken: whether partitions and group are added by requests of their own.
var transactionVersions = map[string]struct {
	level   int16
	without []int // requests that it does not have
}{
	"explicit": {1, nil},
	"implicit": {2, []int{addPartitionsRequest, addOffsetsRequest}},
}

func loseAnswersInTurn(t *testing.T, cluster *kafkad.Cluster) {
	for name, version := range transactionVersions {
		t.Run(name, func(t *testing.T) {
			if err := cluster.SetFeature(t.Context(), "transaction.version", version.level); err != nil {
				t.Fatal(err)
			}
			loseRows(t, cluster, version.without)
		})
	}
}

func loseRows(t *testing.T, cluster *kafkad.Cluster, without []int) {
	t.Run("rows", func(t *testing.T) { // ends when all of them have
		for name, row := range losses {
			if slices.ContainsFunc(row, func(l loss) bool { return slices.Contains(without, l.request) }) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				loseAnswers(t, cluster, row)
			})
		}
	})
}

// loseAnswers hands 240 messages on, while answers are lost.
func loseAnswers(t *testing.T, cluster *kafkad.Cluster, row []loss) {
	const n, keys = 240, 20
	in, out, group := kafkad.Unique("in"), kafkad.Unique("out"), kafkad.Unique("answers")
	for _, topic := range []string{in, out} {
		if err := cluster.CreateTopic(t.Context(), topic, 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	lost := &lostAnswers{todo: slices.Clone(row)}
	at := kafkabroker.Connection{Brokers: cluster.Brokers(), RequestTimeout: 2 * time.Second, DialTimeout: 2 * time.Second}
	dialer.Use(&at, lost.dial)
	source, err := kafkabroker.NewSource(kafkabroker.Config{
		Connection: at, Group: group, Topics: []string{in}, Membership: "classic",
		Transactional: true, TransactionTimeout: 10 * time.Second, SessionTimeout: 10 * time.Second,
		HeartbeatInterval: 100 * time.Millisecond,
		CommitInterval:    50 * time.Millisecond, CommitMessages: 50, MaxWait: 100 * time.Millisecond, Poll: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	p, err := kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: at})
	if err != nil {
		t.Fatal(err)
	}
	var handled atomic.Int64
	c, err := consumer.New(consumer.Config{
		Source: source, Order: consumer.OrderKey, Pool: consumer.Pool{Min: 16, Max: 16},
		Retry: consumer.Retry{MaxAttempts: 1000, Backoff: consumer.Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond}},
		Handler: func(ctx context.Context, m *consumer.Message) error {
			if err := consumer.EmitBy(ctx, p, broker.Outgoing{Topic: out, Key: m.Key, Value: m.Value}); err != nil {
				return err
			}
			if handled.Add(1)%50 == 0 {
				return errors.New("fails after it emitted")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()

	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers()...), kgo.ConsumeTopics(out),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	outs := &emittedOnce{last: map[string]int{}, times: map[int]int{}}
	for i := range n {
		r := &kgo.Record{Topic: in, Key: []byte(strconv.Itoa(i % keys)), Value: []byte(strconv.Itoa(i))}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if i%30 == 29 { // so that there are several transactions, and an answer of a later one to be lost
			outs.read(t, client, i+1)
		}
	}
	eventually(t, "all answers of the row are lost", lost.done)
	stop()
	if err := errors.Join(<-ended, p.Close(context.Background())); err != nil {
		t.Errorf("Run and Close: %v", err)
	}
	outs.judge(t, cluster, client, out, n)
}

// emittedOnce is what a reader of committed messages sees of the outputs, which are numbers.
type emittedOnce struct {
	last     map[string]int
	times    map[int]int
	backward int
}

// read waits until n different ones were seen.
func (e *emittedOnce) read(t *testing.T, client *kgo.Client, n int) {
	t.Helper()
	for end := time.Now().Add(patience); len(e.times) < n; {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %d outputs, only %d came", patience, n, len(e.times))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { e.add(t, r) })
		cancel()
	}
}

// judge reads on to the end of both partitions: what is there twice stands before it.
func (e *emittedOnce) judge(t *testing.T, cluster *kafkad.Cluster, client *kgo.Client, topic string, n int) {
	t.Helper()
	ends, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer ends.Close()
	for p := range int32(2) {
		r := &kgo.Record{Topic: topic, Partition: p, Key: fmt.Append(nil, "end", p), Value: []byte(strconv.Itoa(n + int(p)))}
		if err := ends.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	e.read(t, client, n+2)
	for no, times := range e.times {
		if times != 1 {
			t.Errorf("the output of message %d is there %d times", no, times)
		}
	}
	if e.backward > 0 {
		t.Errorf("%d outputs stand before an earlier one of their key", e.backward)
	}
}

func (e *emittedOnce) add(t *testing.T, r *kgo.Record) {
	no, err := strconv.Atoi(string(r.Value))
	if err != nil {
		t.Fatalf("output %q is no number", r.Value)
	}
	e.times[no]++
	if last, ok := e.last[string(r.Key)]; ok && no < last {
		e.backward++
	}
	e.last[string(r.Key)] = no
}

// lostAnswers ends the connection on which an answer arrives that is to be lost, in its place.
type lostAnswers struct {
	mu   sync.Mutex
	todo []loss
}

func (x *lostAnswers) done() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.todo) == 0
}

func (x *lostAnswers) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &forgetfulConn{Conn: conn, loses: x.loses, asked: make(map[uint32]int)}, nil
}

// loses says whether such a request is to be lost, or an answer to it.
func (x *lostAnswers) loses(request int, itself bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.todo) == 0 || x.todo[0].request != request || x.todo[0].itself != itself {
		return false
	}
	x.todo[0].which--
	if x.todo[0].which > 0 {
		return false
	}
	x.todo = x.todo[1:]
	return true
}

// A forgetfulConn reads along: requests are told by their key (two bytes) and their correlation id (four), behind the length of
// each; answers by that id alone.
type forgetfulConn struct {
	net.Conn
	loses func(request int, itself bool) bool

	mu       sync.Mutex
	asked    map[uint32]int // what was not answered yet, by correlation id
	requests frames
	answers  frames
}

func (c *forgetfulConn) Write(b []byte) (int, error) {
	lost := false
	c.mu.Lock()
	c.requests.read(b, 8, func(_ int, head []byte) bool {
		request := int(binary.BigEndian.Uint16(head))
		c.asked[binary.BigEndian.Uint32(head[4:])] = request
		lost = lost || c.loses(request, true)
		return true
	})
	c.mu.Unlock()
	if lost { // it was sent, as far as who sent it can tell
		_ = c.Close()
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *forgetfulConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	upTo := n
	c.answers.read(b[:n], 4, func(at int, head []byte) bool {
		id := binary.BigEndian.Uint32(head)
		request := c.asked[id]
		delete(c.asked, id)
		if c.loses(request, false) {
			upTo, err = at, io.ErrUnexpectedEOF
			_ = c.Close()
			return false
		}
		return true
	})
	return upTo, err
}

// frames reads along in a stream of messages, each with its length before it.
type frames struct {
	head []byte // of the one that is under way: its length and what follows, as far as it came
	rest int    // bytes to come that nobody asked for
}

// read calls each for the first n bytes of every message, once they are there, with where in b they end; it stops when that says
// so.
func (f *frames) read(b []byte, n int, each func(at int, head []byte) bool) {
	for at := 0; at < len(b); {
		skip := min(f.rest, len(b)-at)
		f.rest -= skip
		at += skip
		take := min(4+n-len(f.head), len(b)-at)
		if f.rest > 0 || take == 0 {
			continue
		}
		f.head = append(f.head, b[at:at+take]...)
		at += take
		if len(f.head) < 4+n {
			return
		}
		head := f.head
		f.rest, f.head = int(binary.BigEndian.Uint32(head))-n, nil
		if !each(max(0, at-len(head)), head[4:]) {
			return
		}
	}
}
