package natsbroker_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/internal/dialer"
)

// A fullConn takes nothing of one write that has something in it, as a socket whose other end has not read for so long that
// there is no room.
type fullConn struct {
	net.Conn
	of *atomic.Pointer[string]
}

func (c fullConn) Write(p []byte) (int, error) {
	if what := c.of.Load(); what != nil && bytes.Contains(p, []byte(*what)) && c.of.CompareAndSwap(what, nil) {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(p)
}

// fill has no room for the next write that has what is stored in what it returns.
func fill(c *natsbroker.Connection) (of *atomic.Pointer[string]) {
	of = new(atomic.Pointer[string])
	dialer.Use(c, func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return fullConn{conn, of}, err
	})
	return of
}

// What the client had in its buffer is lost with a write that is given up, though the connection lives. Were it kept, each later
// PING would have the answer to the one before it, and no lease would ever be known to hold.
func TestPingThatIsNotWritten(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	cfg := config(ts.url())
	cfg.AckWait, cfg.PingInterval = time.Second, time.Hour
	of := fill(&cfg.Connection)
	s := open(t, cfg)
	a.publish(1, 1)
	ack(t, s, receive(t, s, 1)...)
	ping := "PING\r\n"
	of.Store(&ping)
	eventually(t, "a PING is not written", func() bool { return of.Load() == nil })
	eventually(t, "a message is held for longer than its ack wait", func() bool {
		a.publish(2, 2)
		m := receive(t, s, 1)[0]
		pass(t, 3*cfg.AckWait, "its lease is kept")
		return s.Ack(m.Claim, []uint64{m.Token}) == nil
	})
	a.settled()
}

// The same of the subscription by which confirmations come.
func TestSubscriptionThatIsNotWritten(t *testing.T) {
	t.Parallel()
	ts, _ := serveStream(t)
	cfg := natsbroker.PublisherConfig{Connection: config(ts.url()).Connection, AckTimeout: 300 * time.Millisecond}
	of := fill(&cfg.Connection)
	p := must(natsbroker.NewPublisher(cfg))
	defer func() { _ = p.Close(context.Background()) }()
	sub := "SUB "
	of.Store(&sub)
	eventually(t, "a message is confirmed", func() bool {
		return p.Publish(context.Background(), []broker.Outgoing{{Topic: "s.a"}}) == nil
	})
	if of.Load() != nil {
		t.Error("the subscription was written")
	}
}
