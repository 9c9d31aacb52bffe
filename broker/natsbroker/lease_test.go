package natsbroker_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/dialer"
)

// What lay in the socket of a frozen process, or was held up by the network, looks fresh when it is read. Another has had it by
// then: here it has settled all, so that whatever is handed out was late, however busy the machine is.
func TestLateDeliveriesAreNotHandedOut(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.AckWait = 400 * time.Millisecond
	cfg.Heartbeat = 30 * time.Second // the connection is kept
	zombie := open(t, cfg)
	eventually(t, "it asks", func() bool { return a.info().NumWaiting > 0 })
	p.cut(toServer, toClient)
	a.publish(1, 50)
	eventually(t, "they are on their way", func() bool { return a.info().Delivered.Stream == 50 })

	cfg.URLs = []string{ts.url()}
	other := drainAll(open(t, cfg))
	other.has(t, 50) // perhaps after the server tried the zombie's requests again
	a.settled()
	d := drainAll(zombie)
	p.heal()
	pass(t, 3*cfg.AckWait, "three ack waits pass")
	d.stop(t)
	other.stop(t)
	if n, _ := d.seen(); n > 0 {
		t.Errorf("%d messages were handed out that another process has settled", n)
	}
}

// Acks that were lost with their connection are sent again over the next one, long before the server gives the messages to
// others.
func TestAcksOutliveTheirConnection(t *testing.T) {
	ts, a := serveStream(t)
	a.publish(1, 50)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.AckWait = time.Hour
	s := open(t, cfg)
	out := receive(t, s, 50)
	p.cut(toServer)
	ack(t, s, out...)
	eventually(t, "they are in the proxy", func() bool { return p.held() })
	p.drop()
	p.heal()
	a.settled()
}

// A delay holds although the nak that asked for it was lost with its connection.
func TestDelayIsKeptWhenTheNakIsLost(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 1)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.AckWait = time.Second
	s := open(t, cfg)
	m := receive(t, s, 1)[0]
	const delay = 3 * time.Second
	p.cut(toServer)
	at := time.Now()
	if err := s.Nack(m.Claim, []broker.Back{{Token: m.Token, Delay: delay, Runs: 2}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is in the proxy", func() bool { return p.held() })
	p.drop()
	p.heal()
	again := receive(t, s, 1)[0]
	if d := time.Since(at); d < delay {
		t.Errorf("it came again after %v, before %v", d, delay)
	}
	if again.Runs != 2 {
		t.Errorf("it came again with %d runs", again.Runs)
	}
	ack(t, s, again)
	a.settled()
}

// An ack that was held up for longer than its lease said nil, and did not hold: it is told.
func TestLateAcksAreUnconfirmed(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 10)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.AckWait = 500 * time.Millisecond
	cfg.Heartbeat = 10 * time.Second
	s := open(t, cfg)
	out := receive(t, s, 10)
	p.cut(toServer)
	ack(t, s, out...) // each says nil
	other := cfg
	other.URLs = []string{ts.url()}
	receive(t, open(t, other), 10)
	p.heal()
	eventually(t, "they are told", func() bool {
		n := int64(0)
		for _, e := range s.events.of(broker.Unconfirmed) {
			n += e.N
		}
		return n == 10
	})
	a.settled() // a late ack settles all the same
}

// A server that was started again lets leases run out up to a second sooner than it granted them, for it stores when they began
// in whole seconds. A source that is cut off meanwhile cannot know, says nil, and has to tell it afterwards.
func TestAcksAfterARestartAreUnconfirmed(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.AckWait, cfg.MaxReconnectWait = 2*time.Second, 100*time.Millisecond
	s := open(t, cfg)
	for begin := time.Now(); begin.Nanosecond() < 850_000_000; begin = time.Now() { // most of the second is lost then
		time.Sleep(time.Until(begin.Truncate(time.Second).Add(900 * time.Millisecond)))
	}
	a.publish(1, 10)
	out := receive(t, s, 10)
	p.shut()
	ts.down()
	ts.up()
	other := cfg
	other.URLs = []string{ts.url()}
	receive(t, open(t, other), 10)
	kept := int64(0)
	for _, m := range out {
		if s.Ack(m.Claim, []uint64{m.Token}) == nil {
			kept++
		}
	}
	p.heal()
	eventually(t, "each ack that said nil is told", func() bool {
		n := int64(0)
		for _, e := range s.events.of(broker.Unconfirmed) {
			n += e.N
		}
		return n >= kept
	})
	t.Logf("%d of %d acks said nil", kept, len(out))
	a.settled()
}

// A heldConn lets the first write that has something in it wait, once that is wanted.
type heldConn struct {
	net.Conn
	what        string
	wanted      *atomic.Bool
	once        *sync.Once
	begun, goOn chan struct{}
}

func (c heldConn) Write(p []byte) (int, error) {
	if c.wanted.Load() && bytes.Contains(p, []byte(c.what)) {
		c.once.Do(func() {
			close(c.begun)
			<-c.goOn
		})
	}
	return c.Conn.Write(p)
}

// A message that is given back while leases are extended is not extended after that: the server would forget its delay, and
// give it to whoever asks when an ack wait is over.
func TestWhatWasGivenBackIsNotExtended(t *testing.T) {
	t.Parallel()
	const n = 2000 // several buffers of the client
	ts, a := serveStream(t)
	a.publish(1, n)
	cfg := config(ts.url())
	cfg.AckWait = 3 * time.Second
	held := heldConn{what: "+WPI", wanted: new(atomic.Bool), once: new(sync.Once), begun: make(chan struct{}),
		goOn: make(chan struct{})}
	dialer.Use(&cfg.Connection, func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		one := held
		one.Conn = conn
		return one, err
	})
	settles := must(a.nc.SubscribeSync("$JS.ACK.S.c.>"))
	if err := settles.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	s := open(t, cfg, func(o *broker.Options) { o.Budget.Messages = n })
	out := receive(t, s, n)
	held.wanted.Store(true)
	<-held.begun
	last := out[n-1]
	if err := s.Nack(last.Claim, []broker.Back{{Token: last.Token, Delay: time.Hour}}); err != nil {
		t.Errorf("Nack: %v", err)
	}
	pass(t, 100*time.Millisecond, "what gives it back waits for the connection, too")
	close(held.goOn)
	for nakked, others := false, 0; others < 2*n; {
		m, err := settles.NextMsg(patience)
		if err != nil {
			t.Fatalf("given back %v, extended after that %d: %v", nakked, others, err)
		}
		ours := strings.HasPrefix(m.Subject, fmt.Sprintf("$JS.ACK.S.c.1.%d.", last.Offset))
		switch what := string(m.Data); {
		case ours && strings.HasPrefix(what, "-NAK"):
			nakked = true
		case ours && nakked:
			t.Fatalf("%s came after it was given back", what)
		case nakked:
			others++
		}
	}
}
