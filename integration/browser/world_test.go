//go:build unix

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/admin/page"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/longshoremq/longshore/integration/kafkad"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

const (
	token = "canary-token-0123456789"
	inbox = "orders.created"
	dead  = "dead.orders"
)

// A system is a broker, as a consumer and its dead letters need it.
type system struct {
	source    broker.Source
	publisher broker.Publisher
	store     deadletters.Store
	lags      func(context.Context) ([]page.Lag, error)
}

// systems are the brokers that the page is tried on.
var systems = map[string]func(*testing.T) system{"mem": inMemory, "nats": onNATS, "kafka": onKafka}

func inMemory(*testing.T) system {
	b := membroker.New(membroker.Config{Topics: map[string]int{inbox: 4, dead: 2}})
	return system{source: b.Source(membroker.SourceConfig{Topics: []string{inbox}, Group: "g"}), publisher: b.Publisher(),
		store: b.LogView()}
}

// onNATS is a nats-server with JetStream in this process.
func onNATS(t *testing.T) system {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true})
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the nats-server does not start")
	}
	nc, err := nats.Connect(s.ClientURL())
	must(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	must(t, err)
	for name, subject := range map[string]string{"ORDERS": "orders.>", "DEAD": "dead.>"} {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject},
			Storage: jetstream.MemoryStorage})
		must(t, err)
	}
	at := natsbroker.Connection{URLs: []string{s.ClientURL()}}
	source, err := natsbroker.NewSource(natsbroker.Config{Connection: at, Stream: "ORDERS", Consumer: "workers"})
	must(t, err)
	p, err := natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: at})
	must(t, err)
	view, err := natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: at})
	must(t, err)
	lag, err := natsbroker.NewLagView(natsbroker.LagViewConfig{Connection: at, Stream: "ORDERS", Consumer: "workers"})
	must(t, err)
	t.Cleanup(func() { view.Close(); lag.Close() })
	return system{source, p, view, func(ctx context.Context) ([]page.Lag, error) {
		l, err := lag.Read(ctx)
		return []page.Lag{{Of: "ORDERS workers", Committed: &l.Committed, End: &l.End, Lag: &l.Lag, Finished: &l.Finished,
			Pending: &l.Pending, Redelivered: &l.Redelivered}}, err
	}}
}

// onKafka is an Apache Kafka of its own. Where it cannot be had, and nobody demands it, the test is skipped.
func onKafka(t *testing.T) system {
	c := kafkad.Start(t, kafkad.Config{})
	must(t, c.CreateTopic(t.Context(), inbox, 4, nil))
	must(t, c.CreateTopic(t.Context(), dead, 2, nil))
	at := kafkabroker.Connection{Brokers: c.Brokers()}
	source, err := kafkabroker.NewSource(kafkabroker.Config{Connection: at, Group: "workers", Topics: []string{inbox}})
	must(t, err)
	p, err := kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: at})
	must(t, err)
	view, err := kafkabroker.NewLogView(kafkabroker.LogViewConfig{Connection: at})
	must(t, err)
	lag, err := kafkabroker.NewLagView(kafkabroker.LagViewConfig{Connection: at, Group: "workers", Topics: []string{inbox}})
	must(t, err)
	t.Cleanup(func() { view.Close(); lag.Close() })
	return system{source, p, view, func(ctx context.Context) (rows []page.Lag, err error) {
		lags, err := lag.Read(ctx)
		for _, l := range lags {
			rows = append(rows, page.Lag{Of: fmt.Sprintf("%s %d", l.Topic, l.Partition), Committed: &l.Committed, End: &l.End, Lag: &l.Lag,
				Finished: &l.Finished})
		}
		return rows, err
	}}
}

// A world is a consumer that runs, with its page.
type world struct {
	t        *testing.T
	system   system
	consumer *consumer.Consumer
	healed   atomic.Bool
	slow     atomic.Bool
	hold     atomic.Pointer[chan struct{}] // until it is closed, handlers keep what says hold
	replays  *gated
	config   admin.Config
	url      string
	stop     context.CancelFunc // of the admin server
	ended    chan error
}

// begin runs a consumer on a system until the test ends.
func begin(t *testing.T, s system) *world {
	t.Helper()
	w := &world{t: t, system: s, replays: &gated{Publisher: s.publisher}}
	ui, figures := page.New(page.Config{}), metrics.New("orders")
	letters := page.Letters{
		Config: deadletters.Config{Topic: dead, Store: s.store, Publisher: w.replays},
		Allow: func(context.Context) (func(string) bool, error) {
			return func(topic string) bool { return topic == inbox }, nil
		},
	}
	c, err := consumer.New(consumer.Config{
		Name: "orders", Source: s.source, Handler: w.handle, Logger: zerolog.Nop(), Pool: consumer.Pool{Min: 1, Max: 32},
		DeadLetter: &consumer.DeadLetter{Topic: dead, Publisher: s.publisher},
		Observers: []consumer.Observer{figures.Observe,
			ui.Watch("orders", page.Sources{Letters: []page.Letters{letters}, Lags: s.lags, Times: figures})},
	})
	must(t, err)
	w.consumer = c
	w.config = admin.Config{Listen: "127.0.0.1:0", Token: token, Targets: map[string]admin.Target{"orders": c}, Page: ui}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.publisher.Close(closing)
	})
	w.serve()
	t.Cleanup(func() { w.halt() })
	return w
}

// gated is a publisher that can be told to confirm nothing for a while.
type gated struct {
	broker.Publisher
	gate atomic.Pointer[gate]
}

// A gate lets so many messages through, and what comes after them when it is open.
type gate struct {
	left atomic.Int64
	open chan struct{}
}

// after sets a gate behind n messages, and returns what opens it.
func (p *gated) after(n int64) (open func()) {
	g := &gate{open: make(chan struct{})}
	g.left.Store(n)
	p.gate.Store(g)
	return sync.OnceFunc(func() { close(g.open) })
}

// Publish waits at the gate, whatever becomes of ctx, as a broker does that takes its time.
func (p *gated) Publish(ctx context.Context, batch []broker.Outgoing) error {
	if g := p.gate.Load(); g != nil && g.left.Add(int64(-len(batch))) < 0 {
		<-g.open
		ctx = context.WithoutCancel(ctx)
	}
	return p.Publisher.Publish(ctx, batch)
}

// handle keeps what it is to hold, takes a moment where that is asked for, and fails what is bad until it is healed.
func (w *world) handle(ctx context.Context, m *consumer.Message) error {
	if string(m.Value) == "hold" {
		select {
		case <-*w.hold.Load():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if w.slow.Load() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if strings.HasPrefix(string(m.Value), "bad") && !w.healed.Load() {
		return consumer.Permanent(errors.New("the warehouse does not know article 17"))
	}
	return nil
}

// serve starts the admin server, where it was before if it was.
func (w *world) serve() {
	w.t.Helper()
	s, err := admin.New(w.config)
	must(w.t, err)
	must(w.t, s.Listen(context.Background()))
	w.config.Listen = s.Addr().String()
	_, port, _ := net.SplitHostPort(w.config.Listen)
	w.url = "http://127.0.0.1:" + port
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.ended = stop, make(chan error, 1)
	go func() { w.ended <- s.Run(ctx) }()
}

// halt stops the admin server, and says how long that took.
func (w *world) halt() time.Duration {
	w.t.Helper()
	if w.stop == nil {
		return 0
	}
	begin := time.Now()
	w.stop()
	if err := <-w.ended; err != nil {
		w.t.Error(err)
	}
	w.stop = nil
	return time.Since(begin)
}

// publish publishes so many messages, 500 at a time.
func (w *world) publish(n int, payload string) {
	w.t.Helper()
	for n > 0 {
		batch := make([]broker.Outgoing, min(n, 500))
		for i := range batch {
			batch[i] = broker.Outgoing{Topic: inbox, Key: []byte(fmt.Sprintf("customer-%d", i)),
				Value: fmt.Appendf(nil, "%s {\"order\": %d}", payload, n-i)}
		}
		n -= len(batch)
		must(w.t, w.system.publisher.Publish(w.t.Context(), batch))
	}
}

// publishTo publishes messages with one key.
func (w *world) publishTo(key string, values ...string) {
	w.t.Helper()
	batch := make([]broker.Outgoing, len(values))
	for i, value := range values {
		batch[i] = broker.Outgoing{Topic: inbox, Key: []byte(key), Value: []byte(value)}
	}
	must(w.t, w.system.publisher.Publish(w.t.Context(), batch))
}

// decided is when the pool's last decision was taken, as the admin server tells programs; zero: there was none.
func (w *world) decided() time.Time {
	w.t.Helper()
	answer, err := http.Get(w.url + "/consumers/orders")
	must(w.t, err)
	defer answer.Body.Close()
	var row struct{ Decision *struct{ At time.Time } }
	must(w.t, json.NewDecoder(answer.Body).Decode(&row))
	if row.Decision == nil {
		return time.Time{}
	}
	return row.Decision.At
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for over := time.Now().Add(2 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(over) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
