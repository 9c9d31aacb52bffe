package natsbroker_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/integration/daemon"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "12") // most tests wait for leases; the command line has the last word
	goleak.VerifyTestMain(m)
}

const patience = 20 * time.Second

// testServer is an embedded nats-server that can go down and come back on the same port and data.
type testServer struct {
	t    testing.TB
	opts *server.Options
	srv  *server.Server
}

// fewMay has a server with two users, "all" and "few", of whom "few" may do only that. Their password is "word".
func fewMay(that server.Permissions) func(*server.Options) {
	return func(o *server.Options) {
		o.Users = []*server.User{{Username: "all", Password: "word"}, {Username: "few", Password: "word", Permissions: &that}}
	}
}

func startServer(t testing.TB, change ...func(*server.Options)) *testServer {
	t.Helper()
	opts := &server.Options{Host: "127.0.0.1", Port: freePort(t), JetStream: true, StoreDir: storeDir(t), NoLog: true, NoSigs: true}
	for _, c := range change {
		c(opts)
	}
	ts := &testServer{t: t, opts: opts}
	ts.up()
	t.Cleanup(ts.down)
	return ts
}

// serveStream starts a server that has the stream S.
func serveStream(t testing.TB) (*testServer, *admin) {
	t.Helper()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	return ts, a
}

func freePort(t testing.TB) int {
	t.Helper()
	port, err := daemon.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (ts *testServer) up() {
	ts.t.Helper()
	srv, err := server.NewServer(ts.opts.Clone())
	if err != nil {
		ts.t.Fatal(err)
	}
	srv.Start()
	ts.srv = srv
	if !srv.ReadyForConnections(patience) {
		ts.t.Fatal("the server is not ready")
	}
}

func (ts *testServer) down() {
	if ts.srv != nil {
		ts.srv.Shutdown()
		ts.srv.WaitForShutdown()
		ts.srv = nil
	}
}

// lameDown lets the server answer for a while after its JetStream has ended, as one does that is stopped with care.
func (ts *testServer) lameDown(meanwhile func()) {
	lame := make(chan struct{})
	go func(srv *server.Server) {
		defer close(lame)
		srv.LameDuckShutdown()
	}(ts.srv)
	eventually(ts.t, "JetStream has ended", func() bool { return !ts.srv.JetStreamEnabled() })
	meanwhile()
	ts.down()
	<-lame
}

// streamDir is where the stream S is stored.
func (ts *testServer) streamDir() string {
	return filepath.Join(ts.opts.StoreDir, "jetstream", "$G", "streams", "S")
}

func (ts *testServer) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", ts.opts.Port) }

// admin is a connection of the test's own, to look from outside.
type admin struct {
	t  testing.TB
	nc *nats.Conn
	js jetstream.JetStream
}

func (ts *testServer) admin(opts ...nats.Option) *admin {
	ts.t.Helper()
	return adminOf(ts.t, ts.url(), opts...)
}

func adminOf(t testing.TB, url string, opts ...nats.Option) *admin {
	t.Helper()
	opts = append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.Timeout(patience)}, opts...)
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return &admin{t, nc, js}
}

// again waits until the test is connected to a server that was started again. That it believes to be so says nothing: it may not
// know of the end yet.
func (a *admin) again() {
	a.t.Helper()
	eventually(a.t, "the test is connected again", func() bool { return a.nc.FlushTimeout(time.Second) == nil })
}

func (a *admin) stream(change ...func(*jetstream.StreamConfig)) {
	a.t.Helper()
	sc := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}
	for _, c := range change {
		c(&sc)
	}
	eventually(a.t, "the stream is created", func() bool { // a server may still be removing one of that name
		_, err := a.js.CreateStream(context.Background(), sc)
		return err == nil
	})
}

// anew deletes the stream, and makes it and its consumer again as they were.
func (a *admin) anew() {
	a.t.Helper()
	old := a.info().Config
	if err := a.js.DeleteStream(context.Background(), "S"); err != nil {
		a.t.Fatal(err)
	}
	a.stream()
	if _, err := a.js.CreateConsumer(context.Background(), "S", old); err != nil {
		a.t.Fatal(err)
	}
}

func (a *admin) publish(from, to int) {
	a.t.Helper()
	for i := from; i <= to; i++ {
		if _, err := a.js.Publish(context.Background(), "s.a", fmt.Appendf(nil, "%d", i)); err != nil {
			a.t.Fatal(err)
		}
	}
}

func (a *admin) info() *jetstream.ConsumerInfo {
	a.t.Helper()
	for end := time.Now().Add(patience); ; {
		c, err := a.js.Consumer(context.Background(), "S", "c")
		if err == nil {
			return c.CachedInfo()
		}
		// A server that was just started again may take longer than a request does, and a cluster between two leaders says that it is
		// not available.
		var said *jetstream.APIError
		between := errors.As(err, &said) && said.Code == 503
		if !between && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrNoResponders) || time.Now().After(end) {
			a.t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// change changes the consumer, and waits until who uses it has looked at it.
func (a *admin) change(change func(*jetstream.ConsumerConfig)) {
	a.t.Helper()
	cc := a.info().Config
	change(&cc)
	if _, err := a.js.UpdateConsumer(context.Background(), "S", cc); err != nil {
		a.t.Fatal(err)
	}
	a.looked(2)
}

// looked waits until who uses the consumer has looked at it n times more, and come to ask once more.
func (a *admin) looked(n int) {
	a.t.Helper()
	a.asked("CONSUMER.INFO.S.c", n+1)
}

// asked waits until somebody has asked the server for something n times.
func (a *admin) asked(what string, n int) {
	a.t.Helper()
	asks, err := a.nc.SubscribeSync("$JS.API." + what)
	if err != nil {
		a.t.Fatal(err)
	}
	for range n {
		if _, err := asks.NextMsg(patience); err != nil {
			a.t.Fatalf("nobody asks for %s: %v", what, err)
		}
	}
	if err := errors.Join(asks.Unsubscribe(), a.nc.Flush()); err != nil { // who listens would be taken for who answers
		a.t.Fatal(err)
	}
}

// unpin takes the turn away from the process that has it.
func (a *admin) unpin() {
	a.t.Helper()
	if _, err := a.nc.Request("$JS.API.CONSUMER.UNPIN.S.c", []byte(`{"group":"longshore"}`), patience); err != nil {
		a.t.Fatal(err)
	}
}

// settled waits until the server has everything settled.
func (a *admin) settled() {
	a.t.Helper()
	eventually(a.t, "everything is settled", func() bool {
		i := a.info()
		return i.NumPending == 0 && i.NumAckPending == 0
	})
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// pass lets time go by at the server, which has a clock of its own. what says for what.
func pass(t testing.TB, d time.Duration, what string) {
	t.Helper()
	end := time.Now().Add(d)
	eventually(t, what, func() bool { return time.Now().After(end) })
}

// events keeps what a source said.
type events struct {
	mu  sync.Mutex
	all []broker.Event
}

func (e *events) observe(ev broker.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) of(k broker.Kind) []broker.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.all), func(ev broker.Event) bool { return ev.Kind != k })
}

func config(url string) natsbroker.Config {
	return natsbroker.Config{
		Connection: natsbroker.Connection{URLs: []string{url}, ReconnectWait: 20 * time.Millisecond,
			MaxReconnectWait: 200 * time.Millisecond},
		Stream:    "S",
		Consumer:  "c",
		Poll:      100 * time.Millisecond,
		Heartbeat: 500 * time.Millisecond,
	}
}

// opened is an open source with what belongs to it.
type opened struct {
	*natsbroker.Source
	events *events
	traits broker.Traits
}

func open(t testing.TB, cfg natsbroker.Config, change ...func(*broker.Options)) *opened {
	t.Helper()
	s, err := natsbroker.NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ev := &events{}
	o := broker.Options{Budget: broker.Budget{Messages: 100, Bytes: 1 << 20}, Observe: ev.observe}
	for _, c := range change {
		c(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tr, err := s.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSource(t, s) })
	return &opened{s, ev, tr}
}

func closeSource(t testing.TB, s broker.Source) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// receive returns n messages, or fails.
func receive(t testing.TB, s broker.Source, n int) []broker.Message {
	t.Helper()
	type result struct {
		ms  []broker.Message
		err error
	}
	ch := make(chan result, 1)
	go func() {
		var got []broker.Message
		for len(got) < n {
			dst := make([]broker.Message, n-len(got))
			k, err := s.Receive(dst)
			if err != nil {
				ch <- result{got, err}
				return
			}
			got = append(got, dst[:k]...)
		}
		ch <- result{got, nil}
	}()
	select {
	case r := <-ch:
		if r.err != nil {
			t.Fatalf("Receive: %v", r.err)
		}
		return r.ms
	case <-time.After(patience):
		t.Fatalf("not %d messages in %v", n, patience)
		return nil
	}
}

func ack(t testing.TB, s broker.Source, ms ...broker.Message) {
	t.Helper()
	for i := range ms {
		if err := s.Ack(ms[i].Claim, []uint64{ms[i].Token}); err != nil {
			t.Fatalf("Ack of %d: %v", ms[i].Offset, err)
		}
	}
}

// ackLate acks messages while nothing comes through a proxy to the server; the acks come when that heals.
func ackLate(t testing.TB, p *proxy, s broker.Source, ms ...broker.Message) {
	t.Helper()
	p.cut(toServer)
	ack(t, s, ms...)
	eventually(t, "the acks are on their way", p.held)
}

func TestReceiveAndAck(t *testing.T) {
	ts, a := serveStream(t)
	a.publish(1, 500)
	s := open(t, config(ts.url()))
	for i := 1; i <= 500; {
		for _, m := range receive(t, s, 50) {
			if string(m.Value) != fmt.Sprint(i) || m.Offset != int64(i) || m.Partition != -1 || m.Topic != "s.a" || m.Attempt != 1 {
				t.Fatalf("message %d is %+v", i, m)
			}
			if m.Time().Before(time.Now().Add(-time.Minute)) {
				t.Fatalf("message %d is of %v", i, m.Time())
			}
			ack(t, s, m)
			i++
		}
	}
	a.settled()
	if got := s.events.of(broker.Assigned); len(got) != 1 {
		t.Fatalf("%d claims were assigned", len(got))
	}
	eventually(t, "Up is told", func() bool { return len(s.events.of(broker.Up)) > 0 }) // messages may come before
	if got := s.events.of(broker.Up); len(got) != 1 {
		t.Fatalf("%d Up events", len(got))
	}
}

func TestSettleExactlyOnce(t *testing.T) {
	ts, a := serveStream(t)
	a.publish(1, 3)
	s := open(t, config(ts.url()))
	ms := receive(t, s, 3)
	c := ms[0].Claim
	ack(t, s, ms[0])
	if err := s.Ack(c, []uint64{ms[0].Token}); !errors.Is(err, broker.ErrSettled) {
		t.Fatalf("second Ack: %v", err)
	}
	if err := s.Nack(c, []broker.Back{{Token: ms[0].Token}}); !errors.Is(err, broker.ErrSettled) {
		t.Fatalf("Nack after Ack: %v", err)
	}
	if err := s.Ack(c, []uint64{ms[0].Token, ms[1].Token}); !errors.Is(err, broker.ErrSettled) {
		t.Fatalf("Ack of one old and one new: %v", err)
	}
	for _, token := range []uint64{0, 1 << 40, 1<<64 - 1} {
		if err := s.Ack(c, []uint64{token}); !errors.Is(err, broker.ErrSettled) {
			t.Fatalf("Ack of token %d: %v", token, err)
		}
	}
	ack(t, s, ms[2])
	a.settled()
}

func TestNackComesAgainWithRuns(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 1)
	s := open(t, config(ts.url()))
	m := receive(t, s, 1)[0]
	const delay = 300 * time.Millisecond
	at := time.Now()
	if err := s.Nack(m.Claim, []broker.Back{{Token: m.Token, Delay: delay, Runs: 3}}); err != nil {
		t.Fatal(err)
	}
	again := receive(t, s, 1)[0]
	if d := time.Since(at); d < delay {
		t.Fatalf("it came again after %v, before %v", d, delay)
	}
	if again.Runs != 3 || again.Attempt != 2 || again.Offset != m.Offset || again.Token == m.Token {
		t.Fatalf("it came again as %+v", again)
	}
	ack(t, s, again)
	a.settled()
}

func TestStopGivesBackWhatWasNotHandedOut(t *testing.T) {
	ts, a := serveStream(t)
	a.publish(1, 50)
	s := open(t, config(ts.url()))
	out := receive(t, s, 5)
	eventually(t, "the rest is buffered", func() bool { return a.info().NumAckPending == 50 })
	s.Stop()
	s.Stop()
	if _, err := s.Receive(make([]broker.Message, 1)); !errors.Is(err, broker.ErrClosed) {
		t.Fatalf("Receive after Stop: %v", err)
	}
	other := open(t, config(ts.url()))
	rest := receive(t, other, 45)
	for _, m := range rest {
		if m.Offset <= 5 {
			t.Fatalf("message %d is still out elsewhere", m.Offset)
		}
	}
	ack(t, other, rest...)
	ack(t, s, out...)
	a.settled()
}

func noJetStream(o *server.Options) { o.JetStream = false }

type natsOptions = nats.Options
