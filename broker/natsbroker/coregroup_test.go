package natsbroker

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// Who is paused while its connection is away has left the queue group when it is back: the others get all.
func TestPausedWhileReconnecting(t *testing.T) {
	t.Parallel()
	srv := serveCore(t)
	s, d, _ := openGroup(t, srv)
	sub := s.group.subs[0]
	d.cut()
	soon(t, "the connection is away", func() bool { return s.life.link.conn().IsReconnecting() })
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	soon(t, "it leaves", func() bool { return sub.IsDraining() || !sub.IsValid() })
	d.heal()
	soon(t, "the connection is back", s.life.link.connected)
	if err := s.life.link.conn().Flush(); err != nil {
		t.Fatal(err)
	}

	other, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var came atomic.Int32
	if _, err := other.QueueSubscribe("s", "q", func(*nats.Msg) { came.Add(1) }); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := other.Publish("s", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Drain(); err != nil { // it handles what has come
		t.Fatal(err)
	}
	soon(t, "all that came is handled", other.IsClosed)
	if n := came.Load(); n != 100 {
		t.Errorf("%d of 100 messages came to the only member that reads", n)
	}
}

// The same of an inbox to which pulls are answered: the server has nobody there.
func TestInboxDrainedWhileReconnecting(t *testing.T) {
	t.Parallel()
	srv := serveCore(t)
	d := &cutDialer{}
	nc, err := nats.Connect(srv.ClientURL(), nats.SetCustomDialer(d), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.Subscribe("inbox", func(*nats.Msg) {})
	if err != nil {
		t.Fatal(err)
	}
	d.cut()
	soon(t, "the connection is away", nc.IsReconnecting)
	(&inbox{sub: sub, nc: nc}).drain()
	d.heal()
	soon(t, "the connection is back", nc.IsConnected)
	if _, err := nc.Request("inbox", nil, 10*time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a request to the inbox: %v, want that nobody is there", err)
	}
}

func serveCore(t *testing.T) *server.Server {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	soon(t, "the server is up", func() bool { return srv.ReadyForConnections(time.Second) })
	return srv
}

func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// A cutDialer dials, until it is cut, and again when it is healed.
type cutDialer struct {
	mu    sync.Mutex
	down  bool
	deaf  bool
	conns []net.Conn
}

// A deafConn loses what is written to it once its dialer is deafened.
type deafConn struct {
	net.Conn
	d *cutDialer
}

func (c deafConn) Write(p []byte) (int, error) {
	c.d.mu.Lock()
	deaf := c.d.deaf
	c.d.mu.Unlock()
	if deaf {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// deafen has what is written be lost, until the connections are cut.
func (d *cutDialer) deafen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deaf = true
}

func (d *cutDialer) Dial(network, address string) (net.Conn, error) {
	return d.dial(context.Background(), network, address)
}

func (d *cutDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return nil, errors.New("cut")
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		d.conns = append(d.conns, c)
		c = deafConn{c, d}
	}
	return c, err
}

func (d *cutDialer) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down, d.deaf = true, false
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
}

func (d *cutDialer) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down = false
}

// Who is paused just after its connection was lost, and before it has heard of that, was sent messages that nobody got: it tells
// so. Once the server has heard that it left, nothing more is lost with a connection.
func TestPausedBeforeTheLossIsHeard(t *testing.T) {
	t.Parallel()
	s, d, events := openGroup(t, serveCore(t))
	heard := make(chan struct{})
	s.life.link.hooks.lost = func(err error) {
		<-heard
		s.lost(err)
	}
	d.cut()
	soon(t, "the connection is away", func() bool { return s.life.link.conn().IsReconnecting() })
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	soon(t, "it leaves", func() bool { return !s.group.has(func(g *queueGroup) bool { return len(g.subs) > 0 }) })
	close(heard)
	soon(t, "what may be lost is told", func() bool { return events.count(broker.Gap) == 1 })
	d.heal()
	soon(t, "the server knows that it left", func() bool {
		return !s.group.has(func(g *queueGroup) bool { return g.listed }) && events.count(broker.Up) == 2
	})
	d.cut()
	soon(t, "the connection is away again", func() bool { return events.count(broker.Down) == 2 })
	d.heal()
	soon(t, "and back", func() bool { return events.count(broker.Up) == 3 })
	if n := events.count(broker.Gap); n != 1 {
		t.Errorf("%d gaps are told, want 1", n)
	}
}

// What is being drained when the connection is lost, before the server has heard of it, is not with the server when it is back.
func TestLostWhileItLeaves(t *testing.T) {
	t.Parallel()
	srv := serveCore(t)
	s, d, events := openGroup(t, srv)
	other, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	sub := s.group.subs[0]
	func() {
		s.stock.mu.Lock() // what comes waits
		defer s.stock.mu.Unlock()
		for range 10 {
			if err := other.Publish("s", nil); err != nil {
				t.Fatal(err)
			}
		}
		soon(t, "some of it waits", func() bool { n, _, err := sub.Pending(); return n > 1 && err == nil })
		s.stock.flow.paused = true // it is to join no more
		d.deafen()
		s.group.leave()
		soon(t, "the server is told, and does not hear", func() bool { return sub.IsDraining() })
		d.cut()
		d.heal()
		soon(t, "it is back", func() bool { return events.count(broker.Down) == 1 && s.life.link.connected() })
		if err := s.life.link.conn().Flush(); err != nil {
			t.Fatal(err)
		}
		soon(t, "what is left of it is over", func() bool {
			return events.count(broker.Gap) == 1 && !s.group.has(func(g *queueGroup) bool { return len(g.leaving) > 0 })
		})
	}()
	soon(t, "it is drained, or has ended", func() bool { return !sub.IsValid() })
	if err := s.life.link.conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Request("s", nil, 10*time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a request: %v, want that nobody is there", err)
	}
}

// openGroup is an open source of core NATS with one subject, s, and what it told.
func openGroup(t *testing.T, srv *server.Server) (*CoreSource, *cutDialer, *toldEvents) {
	t.Helper()
	d, events := &cutDialer{}, &toldEvents{}
	cfg := CoreConfig{
		Connection: Connection{URLs: []string{srv.ClientURL()}, ReconnectWait: time.Millisecond, MaxReconnectWait: time.Millisecond},
		Subjects:   []string{"s"}, Queue: "q",
	}
	cfg.dial = d.dial
	s, err := NewCoreSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	o := broker.Options{Budget: broker.Budget{Messages: 1000, Bytes: 1 << 20}, Observe: events.observe}
	if _, err := s.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return s, d, events
}

// has says whether something is so of a group.
func (g *queueGroup) has(what func(*queueGroup) bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return what(g)
}

type toldEvents struct {
	mu   sync.Mutex
	told map[broker.Kind]int
}

func (e *toldEvents) observe(ev broker.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.told == nil {
		e.told = map[broker.Kind]int{}
	}
	e.told[ev.Kind]++
}

func (e *toldEvents) count(k broker.Kind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.told[k]
}
