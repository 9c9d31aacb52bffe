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

// TestSlowFetch: the network takes longer for what a fetch asks for than a request may take. It comes nevertheless, for as long as
// something arrives. Cut off, the same would be asked for again, and never come.
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
		return &narrowConn{c, perSecond}, err
	}
	r := startRunner(t, cfg)
	eventually(t, "all messages came", func() bool { return r.has(want) })
}

// A narrowConn brings so many bytes a second.
type narrowConn struct {
	net.Conn
	perSecond int
}

func (c *narrowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), 16<<10)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.perSecond))
	return n, err
}
