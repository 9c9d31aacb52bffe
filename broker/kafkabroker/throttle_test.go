package kafkabroker

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/broker/kit"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/internal/dialer"
)

// A quota is what a broker does to a client that has used it up: answers to requests of a kind say for how long it is throttled,
// and the broker reads nothing more on their connections until then.
type quota struct {
	key     int16
	mute    time.Duration
	mu      sync.Mutex
	answers int // that said so
}

func (q *quota) said() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.answers
}

func (q *quota) over(dial dialer.Func) dialer.Func {
	return func(ctx context.Context, network, to string) (net.Conn, error) {
		conn, err := dial(ctx, network, to)
		if err != nil {
			return nil, err
		}
		return &mutedConn{Conn: conn, q: q}, nil
	}
}

// A mutedConn is a connection to such a broker.
type mutedConn struct {
	net.Conn
	q            *quota
	key, version int16
	answer       []byte // not read yet
	until        time.Time
}

func (c *mutedConn) Write(b []byte) (int, error) {
	if len(b) >= 8 && c.answer == nil {
		c.key, c.version = int16(binary.BigEndian.Uint16(b[4:])), int16(binary.BigEndian.Uint16(b[6:]))
	}
	if d := time.Until(c.until); d > 0 { // the socket takes it, and the broker does not
		kept := append([]byte(nil), b...)
		time.AfterFunc(d, func() { _, _ = c.Conn.Write(kept) })
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *mutedConn) Read(b []byte) (int, error) {
	if c.key != c.q.key {
		return c.Conn.Read(b)
	}
	if len(c.answer) == 0 {
		size := make([]byte, 4)
		if _, err := io.ReadFull(c.Conn, size); err != nil {
			return 0, err
		}
		rest := make([]byte, binary.BigEndian.Uint32(size))
		if _, err := io.ReadFull(c.Conn, rest); err != nil {
			return 0, err
		}
		binary.BigEndian.PutUint32(throttleIn(c.key, c.version, rest), uint32(c.q.mute.Milliseconds()))
		c.answer, c.until = append(size, rest...), time.Now().Add(c.q.mute)
		c.q.mu.Lock()
		c.q.answers++
		c.q.mu.Unlock()
	}
	n := copy(b, c.answer)
	if c.answer = c.answer[n:]; len(c.answer) == 0 {
		c.key, c.answer = -1, nil
	}
	return n, nil
}

// throttleIn is where an answer, from its correlation on, has the time.
func throttleIn(key, version int16, answer []byte) []byte {
	flexible := version >= flexibleSince[key]
	switch {
	case key == keyFetch && flexible:
		return answer[5:]
	case key == keyFetch:
		return answer[4:]
	case flexible:
		return answer[len(answer)-5:]
	}
	return answer[len(answer)-4:]
}

// TestThrottledTransaction: outputs use up a quota for longer than a transaction may take. Their transaction ends in time
// nevertheless, for only its outputs have a quota. Else each was aborted for being late, and all of it sent again.
func TestThrottledTransaction(t *testing.T) {
	for _, level := range []int16{1, 2} { // of transaction.version
		ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1}, "transactional")
		ts.agreeOn(t, level)
		q := &quota{key: keyProduce, mute: time.Minute}
		cfg := ts.config(ts.net.link()).withDefaults()
		cfg.dial = q.over(cfg.dial)
		c, err := cfg.connect()
		if err != nil {
			t.Fatal(err)
		}
		defer c.transport.CloseIdleConnections()
		x := newTransactor(&coordinator{c: c, group: "g"}, &cfg)
		outs := []*broker.Outgoing{{Topic: ts.outputs, Value: []byte("v")}}
		if err := x.commit(t.Context(), func() bool { return true }, nil, outs); err != nil {
			t.Errorf("version %d: %v", level, err)
		}
		if n := len(ts.stored(t, ts.outputs)); n != 1 {
			t.Errorf("version %d: %d outputs are stored, want 1", level, n)
		}
		m := &committer{cfg: &cfg, txn: x, note: contact{events: kit.NewEventQueue()}}
		if wait := m.quotaWait(backlog{finished: 100}); wait < q.mute/2 {
			t.Errorf("version %d: the next one waits for %v, want %v", level, wait, q.mute)
		}
		if wait := m.quotaWait(backlog{waited: true}); wait != 0 {
			t.Errorf("version %d: what somebody waits for waits for %v", level, wait)
		}
	}
}

// TestStopWhileThrottled: the stop waits for no quota, so what is finished by then is stored and not done again.
func TestStopWhileThrottled(t *testing.T) {
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "transactional")
	q := &quota{key: keyProduce, mute: time.Minute}
	l := ts.net.link()
	ts.dials = q.over
	var n atomic.Int64
	_, stop := ts.runConsumer(t, l, consumer.Config{Handler: func(ctx context.Context, m *consumer.Message) error {
		n.Add(1)
		return consumer.Emit(ctx, broker.Outgoing{Topic: ts.outputs, Value: m.Value})
	}})
	ts.put(t, ts.topics[0], 0, 10)
	eventually(t, "outputs are throttled", func() bool { return q.said() > 0 })
	ts.put(t, ts.topics[0], 10, 10)
	eventually(t, "all is handled", func() bool { return n.Load() == 20 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if stored := len(ts.stored(t, ts.outputs)); stored != 20 {
		t.Errorf("%d outputs are stored, want 20", stored)
	}
}

// TestThrottledFetch: fetches use up a quota for longer than the session. What else is asked of that broker does not wait behind
// them, and they are not repeated before the time is over.
func TestThrottledFetch(t *testing.T) {
	for _, protocol := range []string{"sticky", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: 10 * time.Second}, protocol, kfake.NumBrokers(1))
			q := &quota{key: keyFetch, mute: time.Minute}
			l := ts.net.link()
			cfg := ts.config(l)
			cfg.dial = q.over(cfg.dial)
			r := startRunner(t, cfg)
			defer r.kill(l)
			eventually(t, "a fetch is throttled", func() bool { return q.said() > 0 })
			beats := func() int64 { return ts.net.sent(keyHeartbeat) + ts.net.sent(keyConsumerGroupHeartbeat) }
			from := beats()
			eventually(t, "there are heartbeats", func() bool { return beats() > from+5 })
			if e, down := r.event(broker.Down, ""); down {
				t.Errorf("it is down: %v", e.Err)
			}
			if n := q.said(); n > flightsPerBroker {
				t.Errorf("%d fetches, want them to wait", n)
			}
		})
	}
}

// TestDry: a quota under which each fetch comes back empty is told of after a minute, and again each time that it took twice as
// long. One that lets something through is none of those.
func TestDry(t *testing.T) {
	var x throttles
	now := time.Now()
	var told []time.Duration
	empty := func(from, to time.Duration) {
		for at := from; at < to; at += time.Second {
			if took, long := x.fetched(1, true, now.Add(at)); long {
				told = append(told, took)
			}
		}
	}
	empty(0, 50*time.Second)
	x.fetched(2, true, now)
	x.fetched(1, false, now.Add(50*time.Second)) // something came
	empty(51*time.Second, 400*time.Second)
	if want := []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute}; !slices.Equal(told, want) {
		t.Errorf("told after %v, want %v", told, want)
	}
}

// TestThrottledPublisherSaysSo: who gives up waiting for a quota hears of it, and not only that the time is over.
func TestThrottledPublisherSaysSo(t *testing.T) {
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1}, "sticky")
	q := &quota{key: keyProduce, mute: time.Minute}
	conf := ts.config(ts.net.link()).Connection
	conf.dial = q.over(conf.dial)
	p, err := NewPublisher(PublisherConfig{Connection: conf})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); _ = p.Close(ctx) }()
	out := []broker.Outgoing{{Topic: ts.outputs, Value: []byte("v")}}
	if err := p.Publish(ctx, out); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() { failed <- p.Publish(ctx, out) }()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "quota") {
		t.Errorf("it says %v", err)
	}
}

// TestThrottledPublisher: what is published behind what used the quota up waits for its end, and is not lost in a connection that
// nobody reads from.
func TestThrottledPublisher(t *testing.T) {
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1}, "sticky")
	q := &quota{key: keyProduce, mute: 300 * time.Millisecond}
	conf := ts.config(ts.net.link()).Connection
	conf.dial = q.over(conf.dial)
	p, err := NewPublisher(PublisherConfig{Connection: conf})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close(context.Background()) }()
	began := time.Now()
	for range 2 {
		if err := p.Publish(t.Context(), []broker.Outgoing{{Topic: ts.outputs, Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < q.mute {
		t.Errorf("the second was sent after %v, want %v", took, q.mute)
	}
}
