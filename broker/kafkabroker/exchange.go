package kafkabroker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/longshoremq/longshore/broker/kit"
)

// The requests that we speak, by their keys.
const (
	keyProduce          = 0
	keyFetch            = 1
	keyListOffsets      = 2
	keyMetadata         = 3
	keyOffsetCommit     = 8
	keyOffsetFetch      = 9
	keyFindCoordinator  = 10
	keyJoinGroup        = 11
	keyHeartbeat        = 12
	keyLeaveGroup       = 13
	keySyncGroup        = 14
	keySASLHandshake    = 17
	keyAPIVersions      = 18
	keyCreateTopics     = 19
	keyDeleteTopics     = 20
	keyDescribeConfigs  = 32
	keySASLAuthenticate = 36
	keyDeleteGroups     = 42

	keyConsumerGroupHeartbeat = 68
	keyConsumerGroupDescribe  = 69
)

// flexibleSince is the first version of each that has the flexible encoding.
var flexibleSince = map[int16]int16{
	keyAPIVersions: 3, keyProduce: 9, keyFetch: 12, keyMetadata: 9, keyOffsetCommit: 8, keyOffsetFetch: 6,
	keyConsumerGroupHeartbeat: 0, keyConsumerGroupDescribe: 0,
	keyInitProducerID: 2, keyAddPartitionsToTxn: 3, keyAddOffsetsToTxn: 3, keyEndTxn: 3, keyTxnOffsetCommit: 3,
	keyDescribeTransactions: 0,
}

// anyNode lets the Transport choose a broker; controllerNode is whichever is the controller.
const (
	anyNode        = -1
	controllerNode = -2
)

// maxAnswer bounds an answer that grows with the cluster or the group, shortAnswer one that does not.
const (
	maxAnswer   = 64 << 20
	shortAnswer = 64 << 10
)

// limitOf is how long the answer to a request may be that is no fetch.
func limitOf(key int16) int {
	switch key {
	case keyFindCoordinator, keyHeartbeat, keyLeaveGroup, keySASLHandshake, keySASLAuthenticate, keyAPIVersions:
		return shortAnswer
	}
	return maxAnswer
}

// A request is one exchange with one broker. It is routed by kafka-go's Transport and written and read by us:
// protocol.RawExchanger.
type request struct {
	ctx      context.Context // cuts the connection when it ends; a deadline alone would leave it to the broker until then
	node     int32
	key      int16
	version  int16
	clientID string
	body     []byte
	chunks   []chunk // of the body, which lie elsewhere
	limit    int     // of the answer; 0: limitOf its key
	room     int     // what is set aside for the answer already: it is allocated before its bytes are there
	answer   []byte
	cut      bool          // the answer is longer than limit, and only what there is room for was read
	throttle time.Duration // for how long the broker reads nothing on the connection that the answer came by
	arrived  func()        // told of each part of the answer that came; nil: nobody wants to know
	via      atomic.Value  // the address to which it was sent, a string; the exchange may go on when nobody waits for it any more
}

var (
	_ protocol.BrokerMessage = (*request)(nil)
	_ protocol.RawExchanger  = (*request)(nil)
)

func (q *request) ApiKey() protocol.ApiKey { return protocol.ApiKey(q.key) }

func (q *request) Broker(c protocol.Cluster) (protocol.Broker, error) {
	if q.node == controllerNode {
		return protocol.Broker{ID: c.Controller}, nil
	}
	return protocol.Broker{ID: q.node}, nil
}

func (q *request) Required(map[protocol.ApiKey]int16) bool { return true }

func (q *request) flexible() bool {
	since, ok := flexibleSince[q.key]
	return ok && q.version >= since
}

// correlation is the same for all: a connection has one request at a time.
const correlation = 0x6c6f6e67

// RawExchange writes the request and reads its answer. Any error makes the Transport close the connection.
func (q *request) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if d, ok := rw.(interface{ SetDeadline(time.Time) error }); ok {
		defer cutAtEnd(q.ctx, d.SetDeadline)()
	}
	if to, ok := rw.(interface{ RemoteAddr() net.Addr }); ok {
		q.via.Store(to.RemoteAddr().String())
	}
	b := make([]byte, 4, 4+14+len(q.clientID)+len(q.body))
	b = binary.BigEndian.AppendUint16(b, uint16(q.key))
	b = binary.BigEndian.AppendUint16(b, uint16(q.version))
	b = binary.BigEndian.AppendUint32(b, correlation)
	b = binary.BigEndian.AppendUint16(b, uint16(len(q.clientID)))
	b = append(b, q.clientID...)
	if q.flexible() {
		b = append(b, 0)
	}
	from := len(b)
	b = append(b, q.body...)
	if err := writePieces(rw, b, from, q.chunks); err != nil {
		return nil, err
	}
	in := io.Reader(rw)
	if q.arrived != nil {
		in = &arrival{Reader: rw, arrived: q.arrived}
	}
	var h [8]byte
	if _, err := io.ReadFull(in, h[:]); err != nil {
		return nil, err
	}
	n := int64(int32(binary.BigEndian.Uint32(h[:]))) - 4
	over := n > int64(cmp.Or(q.limit, limitOf(q.key)))
	if q.cut = over && q.key == keyFetch; n < 0 || over && !q.cut || binary.BigEndian.Uint32(h[4:]) != correlation {
		return nil, fmt.Errorf("answer of %d bytes: %w", n, errShort)
	}
	if q.cut {
		n = int64(q.room)
	}
	var err error
	if q.answer, err = readClaimed(in, int(n), q.room); err != nil {
		return q, err
	}
	if q.throttle = q.throttled(); q.throttle > mutedMost {
		err = errMuted
	}
	if q.cut {
		err = errCut
	}
	return q, err
}

// errCut closes a connection on which the rest of an answer to Fetch is still to come. A broker sends the first batch whole,
// however large (KIP-74). One that is larger than any may be cannot be decoded; what came of it says which one it is, and without
// that it would be fetched for ever.
var errCut = errors.New("the answer is longer than any may be")

// smallRequest is up to what length a request is written as one piece: to copy that costs less than to write it in several.
const smallRequest = 16 << 10

// writePieces writes a request: its length, and what stands in b behind room for that, with chunks among what begins at b[from].
func writePieces(w io.Writer, b []byte, from int, chunks []chunk) error {
	size := len(b)
	for _, c := range chunks {
		size += len(c.bytes)
	}
	binary.BigEndian.PutUint32(b, uint32(size-4))
	var pieces net.Buffers
	at := 0
	for _, c := range chunks {
		pieces = append(pieces, b[at:from+c.at], c.bytes)
		at = from + c.at
	}
	if at < len(b) {
		pieces = append(pieces, b[at:])
	}
	if size <= smallRequest && len(pieces) > 1 {
		pieces = net.Buffers{bytes.Join(pieces, nil)}
	}
	_, err := pieces.WriteTo(w)
	return err
}

// firstPart is how much is allocated for an answer before its bytes are there.
const firstPart = 64 << 10

// readClaimed reads n bytes, as a peer claims to send. Beyond room, which was set aside for them, it allocates at most what has
// come before.
func readClaimed(r io.Reader, n, room int) ([]byte, error) {
	b := make([]byte, min(n, max(room, firstPart)))
	for at := 0; ; {
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			return nil, err
		}
		if at = len(b); at == n {
			return b, nil
		}
		b = append(b, make([]byte, min(n-at, at))...)
	}
}

// over makes the exchange on a connection that nobody else uses.
func (q *request) over(conn net.Conn) (*reader, error) {
	if _, err := q.RawExchange(conn); err != nil {
		return nil, err
	}
	return q.read()
}

// read begins to read the answer.
func (q *request) read() (*reader, error) {
	r := &reader{b: q.answer, flexible: q.flexible(), cut: q.cut}
	if r.flexible && q.key != keyAPIVersions { // whose answer's header is the oldest, for who does not know its version
		r.tags()
	}
	return r, r.err()
}

// cutAtEnd sets a deadline in the past when ctx ends. stop undoes that, and returns when no call is under way: the Transport
// gives the connection to the next request after it, and a late call would cut that one.
func cutAtEnd(ctx context.Context, setDeadline func(time.Time) error) (stop func()) {
	over := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(over)
		_ = setDeadline(time.Unix(1, 0))
	})
	return func() {
		if !undo() {
			<-over
		}
	}
}

// A cluster sends requests to brokers. Safe for concurrent use.
type cluster struct {
	transport *kafka.Transport
	named     []string // addresses of brokers, by the configuration
	clientID  string
	timeout   time.Duration // of one exchange

	throttles throttles

	mu        sync.Mutex
	versions  map[int32]map[int16][2]int16 // by broker: the least and the highest of each key
	addresses map[int32]string             // by broker, as they tell them
	last      *kit.Recent[int32, string]   // the same, also of brokers that the last answer did not have
	found     time.Time                    // when the Transport was last made to find the brokers anew
	doubted   bool                         // the last request that any broker could answer was not answered
}

// requestName is what a request is called.
func requestName(key int16) string {
	switch key { // kafka-go does not know them
	case keyConsumerGroupHeartbeat:
		return "ConsumerGroupHeartbeat"
	case keyConsumerGroupDescribe:
		return "ConsumerGroupDescribe"
	case keyDescribeTransactions:
		return "DescribeTransactions"
	}
	return protocol.ApiKey(key).String()
}

// errVersion says that a broker is too old.
var errVersion = errors.New("the broker does not speak the request")

// speaksSince is the version of Kafka that a request needs, where that is not the one that a source does.
var speaksSince = map[int16]string{
	keyCreateTopics: "2.4", keyInitProducerID: "2.5", keyAddPartitionsToTxn: "2.5", keyAddOffsetsToTxn: "2.5", keyEndTxn: "2.5",
	keyTxnOffsetCommit: "2.5", keyDescribeTransactions: "3.0", keyConsumerGroupHeartbeat: "4.0", keyConsumerGroupDescribe: "4.0",
}

// do sends a body in the version for which it was written.
func (c *cluster) do(ctx context.Context, node int32, key, version int16, body []byte) (*reader, error) {
	return c.exchange(ctx, &request{node: node, key: key, version: version, body: body}, c.timeout)
}

// produce sends the body of a Produce.
func (c *cluster) produce(ctx context.Context, node int32, version int16, body []byte, chunks []chunk) (*reader, error) {
	q := &request{node: node, key: keyProduce, version: version, body: body, chunks: chunks}
	r, err := c.exchange(ctx, q, c.timeout)
	if err == nil {
		c.throttles.note(node, q.throttle)
	}
	return r, err
}

func (c *cluster) exchange(ctx context.Context, q *request, timeout time.Duration) (*reader, error) {
	var stop func()
	if q.key == keyFetch {
		ctx, q.arrived, stop = withArrivals(ctx, timeout, c.timeout)
	} else {
		ctx, stop = context.WithTimeout(ctx, timeout)
	}
	defer stop()
	q.ctx, q.clientID = ctx, c.clientID
	answer, err := c.transport.RoundTrip(ctx, anywhere, q)
	if q.node == anyNode {
		c.doubt(err != nil)
	}
	if errors.Is(err, errMuted) || errors.Is(err, errCut) { // its answer is there
		return q.read()
	}
	if err != nil {
		if ctx.Err() == nil { // a broker that is slow is the same broker: asking for its versions again would take a heartbeat's time
			c.forget(q.node)
			c.misrouted(q.node, err)
		}
		return nil, c.failed(q, wasLate(ctx, err))
	}
	return answer.(*request).read()
}

// failed says which request failed, and to whom it went where the error does not tell.
func (c *cluster) failed(q *request, err error) error {
	if de := (*dialError)(nil); errors.As(err, &de) {
		return fmt.Errorf("%s request: %w", requestName(q.key), err)
	}
	via, sent := q.via.Load().(string)
	switch {
	case q.node == anyNode && sent: // which may be none of those that the configuration names
		return fmt.Errorf("%s request to broker %s: %w", requestName(q.key), via, err)
	case q.node == anyNode:
		return fmt.Errorf("%s request to broker %s: %w", requestName(q.key), strings.Join(c.named, ","), err)
	case q.node == controllerNode:
		return fmt.Errorf("%s request to the controller of %s: %w", requestName(q.key), strings.Join(c.named, ","), err)
	}
	c.mu.Lock()
	address, known := c.addresses[q.node]
	c.mu.Unlock()
	if !known {
		return fmt.Errorf("%s request to broker %d: %w", requestName(q.key), q.node, err)
	}
	return fmt.Errorf("%s request to broker %s (%d): %w", requestName(q.key), address, q.node, err)
}

func (c *cluster) forget(node int32) {
	c.mu.Lock()
	delete(c.versions, node)
	c.mu.Unlock()
}

// pick returns the highest of our versions that the broker speaks. ours are in falling order. That it speaks none ends a source,
// so it is asked once more before that is said: an answer may have been damaged on its way.
func (c *cluster) pick(ctx context.Context, node int32, key int16, ours ...int16) (version int16, err error) {
	for range 2 {
		vs, unanswered := c.ask(ctx, node)
		if unanswered != nil {
			return 0, unanswered
		}
		if version, err = choose(vs, key, ours...); err == nil {
			return version, nil
		}
		c.forget(node)
	}
	return 0, err
}

func choose(vs map[int16][2]int16, key int16, ours ...int16) (int16, error) {
	if r, ok := vs[key]; ok {
		for _, v := range ours {
			if r[0] <= v && v <= r[1] {
				return v, nil
			}
		}
	}
	if _, listed := vs[keyAPIVersions]; !listed { // which is what it answers
		return 0, fmt.Errorf("%s request: ApiVersions does not list itself: %w", requestName(key), errShort)
	}
	since := cmp.Or(speaksSince[key], "2.3")
	return 0, fmt.Errorf("%s request: %w: Kafka %s or newer is needed", requestName(key), errVersion, since)
}

// ask gets the broker's versions. The Transport asks too, but keeps only those that kafka-go speaks itself.
func (c *cluster) ask(ctx context.Context, node int32) (map[int16][2]int16, error) {
	c.mu.Lock()
	vs := c.versions[node]
	c.mu.Unlock()
	if vs != nil {
		return vs, nil
	}
	r, err := c.do(ctx, node, keyAPIVersions, 0, nil)
	if err != nil {
		return nil, err
	}
	if vs, err = readVersions(r); err != nil {
		return nil, fmt.Errorf("asking for versions: %w", err)
	}
	c.mu.Lock()
	c.versions[node] = vs
	c.mu.Unlock()
	return vs, nil
}

// readVersions reads the least and the highest version of each request.
func readVersions(r *reader) (map[int16][2]int16, error) {
	if err := codeErr(r.i16()); err != nil {
		return nil, err
	}
	vs := make(map[int16][2]int16)
	for n := r.array(); n > 0 && !r.bad; n-- {
		key := r.i16()
		vs[key] = [2]int16{r.i16(), r.i16()}
	}
	return vs, r.err()
}
