package kafkabroker

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// A hastyConn is answered each Fetch at once, by a test.
type hastyConn struct {
	net.Conn
	fetch  func(*kmsg.FetchRequest) []byte
	answer io.Reader
}

func (c *hastyConn) Write(b []byte) (int, error) {
	c.answer = nil
	if binary.BigEndian.Uint16(b[4:]) != keyFetch {
		return c.Conn.Write(b)
	}
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(int16(binary.BigEndian.Uint16(b[6:])))
	body := b[14+int(binary.BigEndian.Uint16(b[12:])):]
	if req.IsFlexible() {
		body = body[1:]
	}
	if err := req.ReadFrom(body); err != nil {
		return 0, err
	}
	answer := c.fetch(req)
	if req.IsFlexible() {
		answer = append([]byte{0}, answer...)
	}
	c.answer = bytes.NewReader(sized(b[8:12], answer))
	return len(b), nil
}

func (c *hastyConn) Read(b []byte) (int, error) {
	if c.answer == nil {
		return c.Conn.Read(b)
	}
	return c.answer.Read(b)
}

// fetchedAt answers each partition that was asked for.
func fetchedAt(req *kmsg.FetchRequest, fill func(*kmsg.FetchResponseTopicPartition, int64)) []byte {
	r := req.ResponseKind().(*kmsg.FetchResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition, rp.HighWatermark, rp.LastStableOffset, rp.PreferredReadReplica = p.Partition, 100, 100, -1
			fill(&rp, p.FetchOffset)
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r.AppendTo(nil)
}

// TestHastyFetches: a broker that answers fetches at once, and never with a message, is not asked thousands of times a second.
// 51,447 requests were sent in 6 s.
func TestHastyFetches(t *testing.T) {
	t.Parallel()
	failing := func(e *kerr.Error) func(*kmsg.FetchRequest) []byte {
		return func(req *kmsg.FetchRequest) []byte {
			return fetchedAt(req, func(p *kmsg.FetchResponseTopicPartition, _ int64) { p.ErrorCode = e.Code })
		}
	}
	for name, answer := range map[string]func(*kmsg.FetchRequest) []byte{
		"nothing": func(req *kmsg.FetchRequest) []byte {
			return fetchedAt(req, func(*kmsg.FetchResponseTopicPartition, int64) {})
		},
		"malformed":      func(*kmsg.FetchRequest) []byte { return []byte{1, 2, 3} },
		"no partition":   func(req *kmsg.FetchRequest) []byte { return req.ResponseKind().AppendTo(nil) },
		"another broker": failing(kerr.NotLeaderForPartition),
		"out of range":   failing(kerr.OffsetOutOfRange),
		"an error":       failing(kerr.UnknownServerError),
		"a replica": func(req *kmsg.FetchRequest) []byte {
			return fetchedAt(req, func(p *kmsg.FetchResponseTopicPartition, _ int64) { p.PreferredReadReplica = 0 })
		},
		"a batch from before": func(req *kmsg.FetchRequest) []byte {
			return fetchedAt(req, func(p *kmsg.FetchResponseTopicPartition, _ int64) {
				p.RecordBatches = (testBatch{offsets: []int64{0}}).bytes()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, kfake.SeedTopics(1, "t"))
			for range 3 {
				seed(t, c)
			}
			var asked atomic.Int64
			conf := Connection{Brokers: c.ListenAddrs(), dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return &hastyConn{Conn: conn, fetch: func(req *kmsg.FetchRequest) []byte { asked.Add(1); return answer(req) }}, err
			}}
			s, err := NewSource(Config{Connection: conf, Group: "g", Topics: []string{"t"}, Start: Start{At: "latest"}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			defer func() { _ = s.Close(ctx) }()
			if _, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20},
				Observe: func(broker.Event) {}}); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = s.Receive(make([]broker.Message, 1)) }()
			defer s.Stop()
			eventually(t, "it fetches", func() bool { return asked.Load() > 0 })
			began, before := time.Now(), asked.Load()
			time.Sleep(time.Second)
			if n, most := asked.Load()-before, int64(25+20*time.Since(began).Seconds()); n > most { // a slow machine asks less
				t.Errorf("%d fetches in %v, want at most %d", n, time.Since(began), most)
			}
		})
	}
}

// TestHastyJoins: a coordinator that answers each join at once, and never with a seat in the group, is not asked thousands of
// times a second.
func TestHastyJoins(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.MemberIDRequired, kerr.RebalanceInProgress, kerr.UnknownMemberID, kerr.IllegalGeneration,
		kerr.CoordinatorNotAvailable} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, kfake.SeedTopics(1, "t"))
			var asked atomic.Int64
			c.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				asked.Add(1)
				r := req.ResponseKind().(*kmsg.JoinGroupResponse)
				r.ErrorCode, r.MemberID = e.Code, "m"
				return r, nil, true
			})
			s, err := NewSource(Config{Connection: Connection{Brokers: c.ListenAddrs()}, Group: "g", Topics: []string{"t"}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			opened := make(chan struct{})
			go func() {
				defer close(opened)
				_, _ = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: func(broker.Event) {}})
			}()
			eventually(t, "it joins", func() bool { return asked.Load() > 0 })
			began, before := time.Now(), asked.Load()
			time.Sleep(time.Second)
			if n, most := asked.Load()-before, int64(25+20*time.Since(began).Seconds()); n > most {
				t.Errorf("%d joins in %v, want at most %d", n, time.Since(began), most)
			}
			_ = s.Close(ctx)
			cancel()
			<-opened
		})
	}
}
