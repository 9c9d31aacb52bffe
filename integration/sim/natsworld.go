package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/integration/sim/memnet"
	"github.com/longshoremq/longshore/internal/dialer"
)

func init() {
	one := "there is one server"
	kinds = append(kinds, Kind{
		Name: "nats", Late: true, Heavy: 15, Shared: true, Pins: true, Shares: true, NoSpill: true, Confuses: true,
		Asked: 31 * time.Second,
		Cannot: map[What]string{
			Leader: one, CutNode: one,
			Revoke: "a leased stream has no partitions", Bounce: "a leased stream has no partitions",
			FailSettles:   "no ack is refused: LoseAnswers loses its receipt",
			FailPublishes: "no server in health refuses a message that it took before: LoseAnswers loses its confirmation",
			Again:         "the server delivers again what was not acked, and nothing else",
			Grow:          "a stream has no partitions",
		},
		EmitsNot: "outputs are published before the ack: at least once, and the server drops repeats by their ids",
		Prepare:  sync.OnceFunc(ats.Register), // one goroutine of the server's, for all servers
		New:      func(t testing.TB, s Schedule) World { return newNATSWorld(t, s) },
	})
}

// A natsWorld is a nats-server, reached over pipes.
type natsWorld struct {
	testing.TB
	schedule Schedule
	weather
	shelf
	dir     string
	storage jetstream.StorageType
	client  *nats.Conn // no fault is in its way
	js      jetstream.JetStream
	groups  map[string][]string         // the topics of each
	letters map[string][]broker.Message // that were read, by topic
	floors  map[string][]int64
	at      *natsServer

	mu    sync.Mutex
	nacks []nack
}

// natsAddress is where the server listens.
const natsAddress = "127.0.0.1:4222"

func newNATSWorld(t testing.TB, s Schedule) *natsWorld {
	forgetPools()
	w := &natsWorld{
		TB: t, schedule: s, weather: weather{net: memnet.New()}, dir: t.TempDir(), storage: jetstream.MemoryStorage,
		groups: map[string][]string{}, floors: map[string][]int64{}, letters: map[string][]broker.Message{},
	}
	if s.has(Restart, Forget) {
		w.storage = jetstream.FileStorage
	}
	w.at = w.serve()
	var err error
	w.client, err = nats.Connect("nats://"+natsAddress, nats.SetCustomDialer(natsDialer{w.net.Host(greetsNATS)}),
		nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.RetryOnFailedConnect(true))
	if err == nil {
		w.js, err = jetstream.New(w.client)
	}
	if err == nil {
		_, err = w.client.Subscribe(nackAdvisories, w.nacked)
	}
	for _, topic := range append(s.Inputs(), s.there()...) {
		if err == nil {
			err = w.create(context.Background(), topic)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// nackAdvisories is where the server tells of each nak of a message that is not settled.
const nackAdvisories = "$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.>"

// nacked notes a nak that the server tells of.
func (w *natsWorld) nacked(m *nats.Msg) {
	var told server.JSConsumerDeliveryNakAdvisory
	if err := json.Unmarshal(m.Data, &told); err != nil {
		w.Errorf("an advisory of a nak: %v", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nacks = append(w.nacks, nack{told.Stream, int64(told.StreamSeq), time.Now()})
}

// Nacks implements nackHearer.
func (w *natsWorld) Nacks() []nack {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.nacks)
}

// create makes a topic's stream.
func (w *natsWorld) create(ctx context.Context, topic string) error {
	_, err := w.js.CreateStream(ctx, jetstream.StreamConfig{Name: topic, Subjects: []string{topic}, Storage: w.storage})
	return err
}

// forgetPools empties each sync.Pool: nats.go keeps timers in one, and a timer of an earlier bubble may not be used in this
// one.
func forgetPools() {
	runtime.GC() // makes what is kept the second choice
	runtime.GC() // forgets that
}

// greetsNATS: nats.go dials and greets under its lock.
var greetsNATS = memnet.HostConfig{Greeted: func(arrived []byte) bool { return bytes.Contains(arrived, []byte("PONG\r\n")) }}

// A natsDialer is a nats.CustomDialer.
type natsDialer struct{ host *memnet.Host }

// Dial implements nats.CustomDialer.
func (d natsDialer) Dial(network, address string) (net.Conn, error) {
	return d.host.Dial(context.Background(), network, address)
}

// Join implements World.
func (w *natsWorld) Join(name string) Process {
	return &natsProcess{sockets: sockets{w.join(greetsNATS)}, w: w, name: name}
}

// Produce implements World.
func (w *natsWorld) Produce(topic string, _ int, key, value []byte) (int64, error) {
	id := string(value) // it is stored once, however often that is tried
	m := &nats.Msg{Subject: topic, Data: value, Header: nats.Header{jetstream.MsgIDHeader: {id}}}
	if key != nil {
		m.Header.Set(natsKey, string(key))
	}
	var ack *jetstream.PubAck
	err := w.ask(func(ctx context.Context) (err error) {
		ack, err = w.js.PublishMsg(ctx, m)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("publishing to %s: %w", topic, err)
	}
	w.store(broker.Message{Topic: topic, Partition: -1, Offset: int64(ack.Sequence), Key: key, Value: value})
	return int64(ack.Sequence), nil
}

// natsKey is the header with the key, of programs that are not longshore.
const natsKey = "Key"

// ask asks the server, again and again while it is away for a moment.
func (w *natsWorld) ask(do func(ctx context.Context) error) (err error) {
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err = do(ctx)
		cancel()
		if err == nil || errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// Do implements World.
func (w *natsWorld) Do(f Fault, p Process) (undo func(), err error) {
	if p, ok := p.(*natsProcess); ok {
		return p.do(f)
	}
	switch f.What {
	case Down:
		return w.down(), nil
	case Delay:
		return w.slow(time.Duration(f.N) * time.Millisecond), nil
	case Restart:
		return nil, w.restart(false)
	case Forget: // what it had not written when it was killed
		return nil, w.restart(true)
	case Steal:
		return nil, w.unpin(f.N)
	case Trim:
		return nil, w.purge(f.N)
	case Make:
		return nil, w.ask(func(ctx context.Context) error { return w.create(ctx, w.schedule.made(f)) })
	case Recreate:
		return nil, w.recreate(f.N)
	case Edit:
		return nil, w.edit(f.N)
	}
	return nil, fmt.Errorf("a nats-server does not know how to do %q", f.What)
}

// unpin lets the server pin another process, where one is pinned.
func (w *natsWorld) unpin(n int) error {
	if w.schedule.Settings.Order == "" {
		return nil
	}
	topic, _ := w.schedule.place(n)
	for group, topics := range w.groups {
		if !slices.Contains(topics, topic) {
			continue
		}
		err := w.ask(func(ctx context.Context) error {
			info, err := w.info(ctx, topic, group)
			if err != nil || len(info.PriorityGroups) == 0 {
				return err
			}
			s, err := w.js.Stream(ctx, topic)
			if err != nil {
				return err
			}
			return s.UnpinConsumer(ctx, group, info.PriorityGroups[0].Group)
		})
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("unpinning %s: %w", group, err)
		}
	}
	return nil
}

// edit gives the durables that are there other settings: fewer messages out, perhaps fewer than are out, smaller pulls, or a pin
// that is kept for longer. The ack wait stays: by it we judge what a lease is.
func (w *natsWorld) edit(n int) error {
	for group, topics := range w.groups {
		for _, topic := range topics {
			err := w.ask(func(ctx context.Context) error {
				info, err := w.info(ctx, topic, group)
				if err != nil {
					return err
				}
				cc, lease := info.Config, time.Duration(w.schedule.Settings.Lease)
				cc.MaxAckPending, cc.MaxRequestBatch = 1+n, n%4*2
				cc.MaxRequestExpires = time.Duration(n%3) * time.Second
				if cc.PinnedTTL > 0 {
					cc.PinnedTTL = lease*5/4 + lease*time.Duration(n%3)/2
				}
				_, err = w.js.UpdateConsumer(ctx, topic, cc)
				return err
			})
			if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return fmt.Errorf("editing %s: %w", group, err)
			}
		}
	}
	return nil
}

// purge drops all but the newest messages of a stream.
func (w *natsWorld) purge(n int) error {
	topic, _ := w.schedule.place(n)
	below := w.above(topic, -1, newest(n))
	if below == 0 {
		return nil
	}
	err := w.ask(func(ctx context.Context) error {
		s, err := w.js.Stream(ctx, topic)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(uint64(below)))
	})
	if err != nil {
		return fmt.Errorf("purging %s below %d: %w", topic, below, err)
	}
	w.drop(topic, -1, below)
	return nil
}

// recreate deletes a stream, with its consumers, and makes it again.
func (w *natsWorld) recreate(n int) error {
	topic, _ := w.schedule.place(n)
	err := w.ask(func(ctx context.Context) error {
		err := w.js.DeleteStream(ctx, topic)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
	if err == nil {
		err = w.ask(func(ctx context.Context) error { return w.create(ctx, topic) })
	}
	if err != nil {
		return fmt.Errorf("making %s anew: %w", topic, err)
	}
	w.empty(topic)
	return nil
}

func (w *natsWorld) info(ctx context.Context, topic, group string) (*jetstream.ConsumerInfo, error) {
	c, err := w.js.Consumer(ctx, topic, group)
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// Messages implements World. Of the outputs these are the dead letters.
func (w *natsWorld) Messages(topic string) ([]broker.Message, error) {
	if !isLetterTopic(topic) {
		return w.have[topic], nil
	}
	err := w.ask(func(ctx context.Context) error {
		s, err := w.js.Stream(ctx, topic)
		if err != nil {
			return err
		}
		for seq := uint64(len(w.letters[topic]) + 1); seq <= s.CachedInfo().State.LastSeq; seq++ {
			m, err := s.GetMsg(ctx, seq)
			if err != nil {
				return err
			}
			w.letters[topic] = append(w.letters[topic],
				broker.Message{Topic: topic, Partition: -1, Offset: int64(seq), Value: m.Data})
		}
		return nil
	})
	return w.letters[topic], err
}

// Unsettled implements World.
func (w *natsWorld) Unsettled() (n int64, where string, err error) {
	var parts []string
	for group, topics := range w.groups {
		for _, topic := range topics {
			left := int64(len(w.have[topic]))
			err := w.ask(func(ctx context.Context) error {
				info, err := w.info(ctx, topic, group)
				if err != nil {
					return err
				}
				left = int64(info.NumPending) + int64(info.NumAckPending)
				key := topic + " for " + group
				if f := w.floors[key]; len(f) == 0 || f[len(f)-1] != int64(info.AckFloor.Stream) {
					w.floors[key] = append(f, int64(info.AckFloor.Stream))
				}
				if left > 0 {
					parts = append(parts, fmt.Sprintf("%s for %s: %d were not delivered, %d not acked, all before %d are",
						topic, group, info.NumPending, info.NumAckPending, info.AckFloor.Stream+1))
				}
				return nil
			})
			if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return 0, "", err
			}
			n += left
		}
	}
	return n, strings.Join(parts, ", "), nil
}

// Floors implements World.
func (w *natsWorld) Floors() map[string][]int64 { return w.floors }

// Close implements World.
func (w *natsWorld) Close() {
	w.client.Close()
	w.at.end()
}

// restart stops the server and starts it again with the same data. One that is killed has not written down the acks of its last
// moments.
func (w *natsWorld) restart(killed bool) error {
	dir := w.dir
	if killed {
		w.at.leave() // nobody reaches it any more
		var err error
		for range 10 { // it still writes, and a file that is about to be renamed may be gone when it is opened
			dir = w.TempDir()
			if err = os.CopyFS(dir, os.DirFS(w.dir)); err == nil {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("copying what a killed server has left: %w", err)
		}
	}
	w.at.end()
	w.dir = dir
	w.at = w.serve()
	return nil
}

// A natsServer is one run of a server.
type natsServer struct {
	w *natsWorld
	s *server.Server
	l net.Listener

	wg sync.WaitGroup
}

// serve starts the server.
func (w *natsWorld) serve() *natsServer {
	s, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: filepath.Join(w.dir, "js"), NoSigs: true, NoLog: true,
		JetStreamMaxMemory: 1 << 28, JetStreamMaxStore: 1 << 28,
	})
	if err != nil {
		w.Fatal(err)
	}
	n := &natsServer{w: w, s: s}
	n.wg.Go(s.Start)
	if !s.ReadyForConnections(time.Minute) {
		w.Fatal("nats-server does not become ready")
	}
	if n.l, err = w.net.Listen("tcp", natsAddress); err != nil {
		w.Fatal(err)
	}
	n.wg.Go(n.accept)
	return n
}

// accept connects who comes to the server, which has pipes of its own.
func (n *natsServer) accept() {
	for {
		outer, err := n.l.Accept()
		if err != nil {
			return
		}
		inner, err := n.s.InProcessConn()
		if err != nil { // it is going down
			_ = outer.Close()
			continue
		}
		for a, b := range map[net.Conn]net.Conn{outer: inner, inner: outer} {
			n.wg.Go(func() {
				_, _ = io.Copy(a, b)
				_ = a.Close()
			})
		}
	}
}

// leave takes it from the network.
func (n *natsServer) leave() {
	_ = n.l.Close()
	n.w.net.Break(natsAddress)
}

// end stops it.
func (n *natsServer) end() {
	n.leave()
	n.s.Shutdown()
	n.s.WaitForShutdown()
	n.wg.Wait()
}

// A natsProcess is a process's sources and publishers on JetStream.
type natsProcess struct {
	sockets
	w    *natsWorld
	name string
}

func (p *natsProcess) connection() natsbroker.Connection {
	c := natsbroker.Connection{URLs: []string{"nats://" + natsAddress}, Name: p.name, DialTimeout: time.Second,
		ReconnectWait: 50 * time.Millisecond, MaxReconnectWait: 500 * time.Millisecond, PingInterval: time.Second}
	dialer.Use(&c, p.host.Dial)
	return c
}

// Source implements Process.
func (p *natsProcess) Source(s Subscription) (broker.Source, error) {
	if len(s.Topics) != 1 {
		return nil, fmt.Errorf("a source of JetStream reads one stream, not %v", s.Topics)
	}
	p.w.groups[s.Group] = s.Topics
	settings := p.w.schedule.Settings
	return natsbroker.NewSource(natsbroker.Config{
		Connection: p.connection(), Stream: s.Topics[0], Consumer: s.Group, KeyHeader: natsKey,
		AckWait: time.Duration(settings.Lease), RevokeWait: time.Duration(settings.RevokeWait),
		Heartbeat: 500 * time.Millisecond, Poll: time.Second, Recreate: p.w.schedule.has(Recreate),
		Share: settings.Share,
	})
}

// Publisher implements Process.
func (p *natsProcess) Publisher() (broker.Publisher, error) {
	return natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: p.connection(), AckTimeout: time.Second})
}

// Close implements Process.
func (p *natsProcess) Close() { p.host.Kill() }

func (p *natsProcess) do(f Fault) (undo func(), err error) { return p.sockets.do(f) }
