package kafkabroker

import (
	"context"
	"crypto/rand"
	"net"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestSlowFetch: the network takes longer for what a fetch asks for than a request may take. It comes nevertheless, for as long
// as something arrives. Cut off, the same would be asked for again, and never come.
func TestSlowFetch(t *testing.T) {
	t.Parallel()
	const n, size, perSecond = 40, 100 << 10, 2 << 20 // all of it is one fetch
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "sticky")
	var want []string
	for range n {
		b := make([]byte, size)
		_, _ = rand.Read(b) // which does not compress; it never fails
		want = append(want, string(b))
	}
	for i, v := range want {
		ts.produce(t, i, broker.Outgoing{Topic: ts.topics[0], Value: []byte(v)})
	}
	cfg := ts.config(ts.net.link())
	cfg.RequestTimeout = n * size * time.Second / perSecond / 4
	dial := cfg.dial
	cfg.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		return &narrowConn{Conn: c, down: perSecond}, err
	}
	r := startRunner(t, cfg)
	eventually(t, "all messages came", func() bool { return r.has(want) })
}

// A narrowConn takes and brings so many bytes a second; 0: as many as there are.
type narrowConn struct {
	net.Conn
	down, up int
}

func (c *narrowConn) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		piece := b[n:min(len(b), n+16<<10)]
		if c.up > 0 {
			time.Sleep(time.Duration(len(piece)) * time.Second / time.Duration(c.up))
		}
		var m int
		m, err = c.Conn.Write(piece)
		n += m
	}
	return n, err
}

func (c *narrowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), 16<<10)])
	if c.down > 0 {
		time.Sleep(time.Duration(n) * time.Second / time.Duration(c.down))
	}
	return n, err
}

// TestSlowProduce: the network takes longer for a request of the largest kind than it may take. Smaller ones come through.
func TestSlowProduce(t *testing.T) {
	t.Parallel()
	const n, size, perSecond, partitions = 40, 100 << 10, 1 << 20, 4
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: partitions, Lease: lasting}, "sticky")
	cfg := ts.config(ts.net.link()).Connection
	cfg.RequestTimeout = n * size * time.Second / perSecond / 4
	dial := cfg.dial
	cfg.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		return &narrowConn{Conn: c, up: perSecond}, err
	}
	p, err := NewPublisher(PublisherConfig{Connection: cfg})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close(context.Background()) }()
	outs := make([]broker.Outgoing, n)
	for i := range outs {
		outs[i] = broker.Outgoing{Topic: ts.topics[0], Key: []byte{byte(i)}, Value: make([]byte, size)}
	}
	eventually(t, "all is stored", func() bool { return p.Publish(t.Context(), outs) == nil })
}
