package kafkabroker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/dialer"
)

// A spoiler is a network on which the answers to one kind of request are hostile, each in another way.
type spoiler struct {
	key  int16
	ways []func(frame []byte) []byte // one after the other, to our own requests, and then no more; nil: spoilt, in turns

	mu   sync.Mutex
	hits int // answers that were spoiled
}

// spoilt are the ways. frame is the whole answer. One that is not whole is followed by the end of the connection.
var spoilt = []func(frame []byte) []byte{
	func(f []byte) []byte { return sized(f[4:8], bytes.Repeat([]byte{0x7f, 0xff, 0xff, 0xff}, 2)) },
	func(f []byte) []byte {
		return sized(f[4:8], append([]byte{0, 0}, bytes.Repeat([]byte{0x7f, 0xff, 0xff, 0xff}, 5)...))
	},
	func(f []byte) []byte {
		return sized(f[4:8], append([]byte{0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{0x7f, 0xff}, 9)...))
	},
	func(f []byte) []byte { return sized(f[4:8], bytes.Repeat([]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, 6)) },
	func(f []byte) []byte { return sized(f[4:8], nil) },
	func(f []byte) []byte { return f[:8+(len(f)-8)/2] },
	func(f []byte) []byte { return f[:3] },
	func(f []byte) []byte { return claiming(maxAnswer, f) },
	func(f []byte) []byte { return claiming(1<<31-1, f) },
	func(f []byte) []byte { return claiming(1<<32-1, f) },
	func(f []byte) []byte { return claiming(3, f) },
}

func sized(correlation, body []byte) []byte {
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(4+len(body))), correlation...), body...)
}

func claiming(size uint32, f []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, size), f[4:]...)
}

func (s *spoiler) met() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits
}

// again has the next answers spoiled.
func (s *spoiler) again(ways ...func(frame []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hits, s.ways = 0, ways
}

func (s *spoiler) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return s.over((&net.Dialer{}).DialContext)(ctx, network, address)
}

func (s *spoiler) over(dial dialer.Func) dialer.Func {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &spoiltConn{Conn: c, s: s}, nil
	}
}

// A spoiltConn has one request at a time, written at once.
type spoiltConn struct {
	net.Conn
	s      *spoiler
	key    int16
	answer io.Reader
}

func (c *spoiltConn) Write(b []byte) (int, error) {
	c.key, c.answer = int16(binary.BigEndian.Uint16(b[4:])), nil
	return c.Conn.Write(b)
}

func (c *spoiltConn) Read(b []byte) (int, error) {
	if c.key != c.s.key {
		return c.Conn.Read(b)
	}
	if c.answer == nil {
		var size [4]byte
		if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
			return 0, err
		}
		frame := append(size[:], make([]byte, binary.BigEndian.Uint32(size[:]))...)
		if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
			return 0, err
		}
		c.answer = bytes.NewReader(c.s.spoil(frame))
	}
	return c.answer.Read(b)
}

func (s *spoiler) spoil(frame []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ways == nil:
		frame = spoilt[s.hits%len(spoilt)](frame)
	case s.hits < len(s.ways) && binary.BigEndian.Uint32(frame[4:]) == correlation:
		frame = s.ways[s.hits](frame)
	default:
		return frame
	}
	s.hits++
	return frame
}

// TestHostileAnswers: whatever a broker answers to any request that we send, the process lives, takes little memory and tells an
// error.
func TestHostileAnswers(t *testing.T) {
	const rows = 23
	n := allocated(func() { t.Run("requests", testHostileAnswers) })
	if most := uint64(rows * 24 << 20); n > most { // on a busy machine it tries more often, and one answer may ask for 2 GiB
		t.Errorf("%d bytes were allocated, want at most %d", n, most)
	}
}

func testHostileAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		key int16
		try func(*testing.T, Connection) error
	}{
		"Produce":                     {keyProduce, publishOnce},
		"Metadata of a publisher":     {keyMetadata, publishOnce},
		"ApiVersions of a publisher":  {keyAPIVersions, publishOnce},
		"SaslHandshake":               {keySASLHandshake, publishOnce},
		"SaslAuthenticate":            {keySASLAuthenticate, publishOnce},
		"ApiVersions":                 {keyAPIVersions, consumeOnce},
		"Metadata":                    {keyMetadata, consumeOnce},
		"FindCoordinator":             {keyFindCoordinator, consumeOnce},
		"JoinGroup":                   {keyJoinGroup, consumeOnce},
		"SyncGroup":                   {keySyncGroup, consumeOnce},
		"Heartbeat":                   {keyHeartbeat, consumeOnce},
		"OffsetFetch":                 {keyOffsetFetch, consumeOnce},
		"OffsetCommit":                {keyOffsetCommit, consumeOnce},
		"ListOffsets":                 {keyListOffsets, consumeOnce},
		"Fetch":                       {keyFetch, consumeOnce},
		"LeaveGroup":                  {keyLeaveGroup, leaveOnce},
		"OffsetFetch of a lag view":   {keyOffsetFetch, func(t *testing.T, c Connection) error { return lagError(t, c) }},
		"CreateTopics, DeleteRecords": {keyCreateTopics, createOnce},
		"CreateTopics of an admin":    {keyCreateTopics, administerOnce},
		"Metadata of an admin":        {keyMetadata, administerOnce},
		"DeleteTopics":                {keyDeleteTopics, administerOnce},
		"DeleteGroups":                {keyDeleteGroups, administerOnce},
		"FindCoordinator of an admin": {keyFindCoordinator, administerOnce},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := []kfake.Opt{kfake.SeedTopics(1, "t")}
			conf := Connection{DialTimeout: time.Second, RequestTimeout: time.Second}
			if tc.key == keySASLHandshake || tc.key == keySASLAuthenticate {
				opts = append(opts, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p"))
				conf.SASL = SASL{Mechanism: "PLAIN", User: "u", Password: broker.NewSecret("p")}
			}
			c := startCluster(t, opts...)
			if conf.SASL.Mechanism == "" {
				seed(t, c)
			}
			s := &spoiler{key: tc.key}
			conf.Brokers, conf.dial = c.ListenAddrs(), s.dial
			for end := time.Now().Add(patience); s.met() < len(spoilt) && time.Now().Before(end); {
				if err := tc.try(t, conf); err == nil {
					t.Errorf("no error after %d hostile answers", s.met())
				}
			}
			if n := s.met(); n < len(spoilt) {
				t.Errorf("%d hostile answers were given, want %d", n, len(spoilt))
			}
		})
	}
}

func seed(t *testing.T, c *kfake.Cluster) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), kgo.StringRecord("m")).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func publishOnce(t *testing.T, c Connection) error {
	t.Helper()
	p, err := NewPublisher(PublisherConfig{Connection: c})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	defer func() { _ = p.Close(ctx) }()
	return p.Publish(ctx, []broker.Outgoing{{Topic: "t", Value: []byte("v")}})
}

// consumeOnce runs a source until it tells something, and returns what.
func consumeOnce(t *testing.T, c Connection) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	told := make(chan error, 1)
	s, err := NewSource(Config{Connection: c, Group: "g", Topics: []string{"t"}, HeartbeatInterval: 50 * time.Millisecond,
		CommitInterval: 20 * time.Millisecond, Poll: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(ctx) }()
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: func(e broker.Event) {
		if e.Err != nil {
			select {
			case told <- e.Err:
			default:
			}
		}
	}})
	if err != nil {
		return err
	}
	go func() {
		dst := make([]broker.Message, 1)
		for {
			if _, err := s.Receive(dst); err != nil {
				return
			}
			_ = s.Ack(dst[0].Claim, []uint64{dst[0].Token})
		}
	}()
	defer s.Stop()
	select {
	case err = <-told:
	case <-ctx.Done():
	}
	return err
}

// leaveOnce leaves a group.
func leaveOnce(t *testing.T, c Connection) error {
	t.Helper()
	s, err := NewSource(Config{Connection: c, Group: "g", Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	defer func() { _ = s.Close(ctx) }()
	if _, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20},
		Observe: func(broker.Event) {}}); err != nil {
		return err
	}
	return s.m.leave(ctx)
}

func createOnce(t *testing.T, c Connection) error {
	t.Helper()
	v, err := NewLogView(LogViewConfig{Connection: c})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	return v.CreateLog(t.Context(), "made", "")
}

// administerOnce makes a topic and deletes it, and a group that is not there.
func administerOnce(t *testing.T, c Connection) error {
	t.Helper()
	a, err := NewAdmin(c)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	return errors.Join(a.CreateTopic(t.Context(), "made", 2), a.DeleteGroup(t.Context(), "none"), a.DeleteTopic(t.Context(), "made"))
}
