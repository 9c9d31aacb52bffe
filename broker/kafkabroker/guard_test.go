package kafkabroker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
)

// An answerer is a connection whose other end answers each request with the same.
type answerer struct {
	net.Conn
	frame []byte
	rest  *bytes.Reader
	by    time.Time // the last deadline
}

func (c *answerer) SetDeadline(t time.Time) error {
	c.by = t
	return nil
}

func (c *answerer) Write(b []byte) (int, error) {
	c.rest = bytes.NewReader(c.frame)
	return len(b), nil
}

func (c *answerer) Read(b []byte) (int, error) { return c.rest.Read(b) }

// framed is an answer to kafka-go's first request on a connection.
func framed(body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	return append(binary.BigEndian.AppendUint32(b, 1), body...)
}

// allocated is how many bytes a call allocates.
func allocated(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// kafkaGo are requests of kafka-go's, in their newest versions, with a whole answer.
var kafkaGo = []struct {
	name    string
	request protocol.Message
	version int16
	answer  protocol.Message
}{
	{"ApiVersions 0", &apiversions.Request{}, 0, &apiversions.Response{ApiKeys: []apiversions.ApiKeyResponse{{ApiKey: 3,
		MaxVersion: 9}, {ApiKey: 1}}}},
	{"ApiVersions 2", &apiversions.Request{}, 2, &apiversions.Response{ApiKeys: []apiversions.ApiKeyResponse{{ApiKey: 3,
		MaxVersion: 9}}, ThrottleTimeMs: 7}},
	{"Metadata 0", &metadata.Request{}, 0, metadataAnswer},
	{"Metadata 5", &metadata.Request{}, 5, metadataAnswer},
	{"Metadata 7", &metadata.Request{}, 7, metadataAnswer},
	{"Metadata 8", &metadata.Request{}, 8, metadataAnswer},
	{"Produce 0", &produce.Request{Acks: -1}, 0, produceAnswer},
	{"Produce 2", &produce.Request{Acks: -1}, 2, produceAnswer},
	{"Produce 5", &produce.Request{Acks: -1}, 5, produceAnswer},
	{"Produce 8", &produce.Request{Acks: -1}, 8, produceAnswer},
}

var metadataAnswer = &metadata.Response{
	ClusterID: "c", ControllerID: 1, Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: "h", Port: 9092, Rack: "r"}},
	Topics: []metadata.ResponseTopic{{Name: "t", Partitions: []metadata.ResponsePartition{{LeaderID: 1, ReplicaNodes: []int32{1, 2},
		IsrNodes: []int32{1}, OfflineReplicas: []int32{2}}}}},
}

var produceAnswer = &produce.Response{Topics: []produce.ResponseTopic{{Topic: "t", Partitions: []produce.ResponsePartition{
	{BaseOffset: 7, RecordErrors: []produce.ResponseError{{BatchIndex: 1, BatchIndexErrorMessage: "x"}}, ErrorMessage: "y"},
}}}}

// body is an answer as a broker writes it, without size and correlation.
func body(t testing.TB, version int16, answer protocol.Message) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := protocol.WriteResponse(&b, version, 1, answer); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()[8:]
}

// askGuarded lets kafka-go ask over a guard, and be answered with a frame.
func askGuarded(request protocol.Message, version int16, frame []byte) (protocol.Message, error) {
	return askOver(&answerer{frame: frame}, request, version)
}

func askOver(c *answerer, request protocol.Message, version int16) (protocol.Message, error) {
	pc := protocol.NewConn(&guard{Conn: c}, "test")
	pc.SetVersions(map[protocol.ApiKey]int16{request.ApiKey(): version})
	return pc.RoundTrip(request)
}

// TestGuardOfDiscovery: all requests wait for the Transport's first question for brokers, so that has little time. Others have as
// much as whoever asks gives them.
func TestGuardOfDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			request protocol.Message
			answer  protocol.Message
			want    time.Time
		}{
			{&metadata.Request{TopicNames: []string{}}, metadataAnswer, time.Now().Add(discoveryWait)},
			{&produce.Request{Acks: -1}, produceAnswer, time.Time{}},
		} {
			c := &answerer{frame: framed(body(t, 8, tc.answer))}
			if _, err := askOver(c, tc.request, 8); err != nil || !c.by.Equal(tc.want) {
				t.Errorf("%T: %v, the deadline is %v, want %v", tc.request, err, c.by, tc.want)
			}
		}
	})
}

// TestGuard: kafka-go gets each answer that is whole, and none that claims more than it has, wherever in it the claim is. Without
// a guard eight bytes took 100 GB.
func TestGuard(t *testing.T) {
	for _, tc := range kafkaGo {
		t.Run(tc.name, func(t *testing.T) {
			whole := body(t, tc.version, tc.answer)
			if _, err := askGuarded(tc.request, tc.version, framed(whole)); err != nil {
				t.Fatalf("a whole answer: %v", err)
			}
			hostile := [][]byte{framed(append([]byte{0, 0}, bytes.Repeat([]byte{0x7f, 0xff, 0xff, 0xff}, 2)...)), framed(nil),
				framed(whole)[:len(whole)]}
			for n := range whole {
				hostile = append(hostile, framed(whole[:n]))
			}
			for _, frame := range hostile {
				var err error
				if n := allocated(func() { _, err = askGuarded(tc.request, tc.version, frame) }); err == nil || n > 256<<10 {
					t.Errorf("% x: %d bytes were allocated, %v", frame, n, err)
				}
			}
			for at := range len(whole) { // in a number it means nothing, in a count it is a lie
				for _, lie := range [][]byte{{0x7f, 0xff, 0xff, 0xff}, {0x7f, 0xff}, {0x80, 0, 0, 0}} {
					b := bytes.Clone(whole)
					copy(b[at:], lie)
					if n := allocated(func() { _, _ = askGuarded(tc.request, tc.version, framed(b)) }); n > 256<<10 {
						t.Errorf("% x at %d: %d bytes were allocated", lie, at, n)
					}
				}
			}
		})
	}
}

// TestGuardSize: what the size alone claims is not allocated, and one that no answer has is an error.
func TestGuardSize(t *testing.T) {
	for _, size := range []uint32{maxAnswer, maxAnswer + 1, 1<<31 - 1, 1<<32 - 1, 0, 3} {
		frame := append(binary.BigEndian.AppendUint32(nil, size), 0, 0, 0, 1, 0)
		var err error
		n := allocated(func() { _, err = askGuarded(&metadata.Request{}, 8, frame) })
		if err == nil || n > 256<<10 {
			t.Errorf("size %d: %d bytes were allocated, %v", size, n, err)
		}
	}
}

// TestGuardUnknown: an answer whose shape is not known here is refused, so that a new request of kafka-go's cannot go round the
// guard.
func TestGuardUnknown(t *testing.T) {
	if _, err := askGuarded(&createtopics.Request{}, 0, framed(make([]byte, 4))); !errors.Is(err, errUnchecked) {
		t.Errorf("CreateTopics: %v", err)
	}
	g := &guard{Conn: &answerer{frame: framed(make([]byte, 4))}}
	_, _ = g.Write([]byte{0, 0, 0, 4, 'u', 's', 'e', 'r'}) // a token of SASL as before Kafka 1.0
	if _, err := io.ReadAll(g); !errors.Is(err, errUnchecked) {
		t.Errorf("no request: %v", err)
	}
}

// FuzzGuard: whatever a broker answers to kafka-go is an error or a value, and takes no more memory than a multiple of its bytes.
func FuzzGuard(f *testing.F) {
	for i, tc := range kafkaGo {
		f.Add(uint8(i), body(f, tc.version, tc.answer))
	}
	f.Add(uint8(3), bytes.Repeat([]byte{0x7f, 0xff, 0xff, 0xff}, 2))
	f.Fuzz(func(t *testing.T, i uint8, b []byte) {
		tc := kafkaGo[int(i)%len(kafkaGo)]
		n := allocated(func() { _, _ = askGuarded(tc.request, tc.version, framed(b)) })
		if most := uint64(256<<10 + 100*len(b)); n > most {
			t.Fatalf("%s: %d bytes of an answer of %d", tc.name, n, len(b))
		}
	})
}

// TestModest: a challenge that asks for hours of work is refused before the work is begun, and the ones that Kafka makes are not.
func TestModest(t *testing.T) {
	for challenge, refused := range map[string]bool{
		"r=abc,s=QSXCR+Q6sek8bf92,i=4096": false, "r=abc,s=QSXCR+Q6sek8bf92,i=16384": false, "r=i=9,s=i,i=4096": false, "": false,
		"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=":        false,
		"r=abc,s=QSXCR+Q6sek8bf92,i=2147483647": true, "i=1000001,r=a": true, "r=a,s=b,i=99999999999999999999": true,
		"r=a,s=b,i=many": true,
	} {
		if err := modest([]byte(challenge)); (err != nil) != refused {
			t.Errorf("%q: %v, want that it is refused: %v", challenge, err, refused)
		}
	}
}
