//go:build unix

package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/inbox"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// workerEnv makes the test binary a process that handles messages into a database: its value is a workerConfig.
const workerEnv = "LONGSHORE_TEST_INBOX"

type workerConfig struct {
	Database database
	NATS     string   // its URL, or else
	Brokers  []string // Kafka's
	Topic    string   // or the stream; the group's name, too
}

func (c *workerConfig) source() (broker.Source, error) {
	if c.NATS == "" {
		return kafkabroker.NewSource(kafkabroker.Config{
			Connection: kafkabroker.Connection{Brokers: c.Brokers}, Group: c.Topic, Topics: []string{c.Topic},
			SessionTimeout: 2 * time.Second, HeartbeatInterval: 200 * time.Millisecond, CommitInterval: 50 * time.Millisecond,
		})
	}
	return natsbroker.NewSource(natsbroker.Config{
		Connection: natsbroker.Connection{URLs: []string{c.NATS}}, Stream: c.Topic, Consumer: c.Topic, AckWait: time.Second,
		Poll: 50 * time.Millisecond,
	})
}

// workerMain writes a row for each message. One run in fifty fails before its commit, and one behind it.
func workerMain(arg string) int {
	var c workerConfig
	if err := json.Unmarshal([]byte(arg), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := work(c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func work(c workerConfig) error {
	db, err := sql.Open(c.Database.Driver, c.Database.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	box, err := inbox.New(inbox.Config{DB: db, Dialect: c.Database.Dialect, Consumer: c.Topic, Interval: 50 * time.Millisecond})
	if err != nil {
		return err
	}
	source, err := c.source()
	if err != nil {
		return err
	}
	var first sync.Once
	k, err := consumer.New(consumer.Config{
		Source: source, Pool: consumer.Pool{Min: 16, Max: 16}, DrainTimeout: 5 * time.Second,
		Retry: consumer.Retry{MaxAttempts: 1000, Backoff: consumer.Backoff{Initial: 5 * time.Millisecond, Max: 50 * time.Millisecond}},
		Handler: func(ctx context.Context, m *consumer.Message) error {
			if err := effect(ctx, db, box, m, c.Database.Dialect); err != nil {
				return err
			}
			first.Do(func() { fmt.Println("handled") })
			if rand.IntN(50) == 0 {
				return errors.New("told to fail behind the commit")
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	pruning, stop := context.WithCancel(context.Background())
	var pruned sync.WaitGroup
	pruned.Go(func() { err = errors.Join(err, box.Run(pruning, k)) })
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	ran := k.Run(ctx)
	stop()
	pruned.Wait()
	return errors.Join(ran, err)
}

// effect is what the documentation of package inbox shows.
func effect(ctx context.Context, db *sql.DB, box *inbox.Inbox, m *consumer.Message, d inbox.Dialect) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	first, err := box.Once(ctx, tx, m)
	if err != nil || !first {
		return err
	}
	n, err := strconv.ParseInt(string(m.Value), 10, 64)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, insertEffect(d), n); err != nil {
		return err
	}
	if rand.IntN(50) == 0 {
		return errors.New("told to fail before the commit")
	}
	return tx.Commit()
}

// insertEffect writes one down, in the database's words.
func insertEffect(d inbox.Dialect) string {
	if d == inbox.SQLite {
		return "INSERT INTO effects (position) VALUES (?)"
	}
	return "INSERT INTO effects (position) VALUES ($1)"
}

// A worker is such a process.
type worker struct {
	cmd      *exec.Cmd
	out, err said
	done     chan struct{}
}

// said is what a process has said. Safe for concurrent use.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func startWorker(t *testing.T, c workerConfig) *worker {
	t.Helper()
	arg, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd: exec.Command(exe), done: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+string(arg))
	w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.err
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = w.cmd.Wait(); close(w.done) }()
	t.Cleanup(func() { w.end(t) })
	eventually(t, "a worker handles", func() bool {
		select {
		case <-w.done:
			t.Fatalf("the worker ended: %s", w.err.String())
		default:
		}
		return strings.Contains(w.out.String(), "handled")
	})
	return w
}

func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	<-w.done
}

// end ends it with its test. Where that failed, it is told what the worker's goroutines did, and what it had to say.
func (w *worker) end(t *testing.T) {
	select {
	case <-w.done: // it was killed, or has ended
		return
	default:
	}
	if !t.Failed() {
		w.kill()
		return
	}
	_ = w.cmd.Process.Signal(syscall.SIGQUIT)
	<-w.done
	t.Logf("worker %d said:\n%s", w.cmd.Process.Pid, w.err.String())
}

// terminate ends it as a deployment does.
func (w *worker) terminate(t *testing.T) {
	t.Helper()
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	<-w.done
	if code := w.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM: %s", code, w.err.String())
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// startNATS starts a nats-server in this process, with a stream, and returns how messages are sent to it.
func startNATS(t *testing.T, c *workerConfig) (send func(value []byte) error) {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(patience) {
		t.Fatal("nats-server does not answer")
	}
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: c.Topic, Subjects: []string{c.Topic}}); err != nil {
		t.Fatal(err)
	}
	c.NATS = ns.ClientURL()
	return func(value []byte) error {
		_, err := js.Publish(context.Background(), c.Topic, value)
		return err
	}
}

// startKafka starts Apache Kafka, or where it cannot be had a fake, with a topic.
func startKafka(t *testing.T, c *workerConfig) (send func(value []byte) error) {
	cluster := kafkad.Shared(t)
	if err := cluster.CreateTopic(t.Context(), c.Topic, 4, nil); err != nil {
		t.Fatal(err)
	}
	c.Brokers = cluster.Brokers()
	// To each partition in turn: a worker that is started handles something soon, whichever of them it is given.
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers...), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return func(value []byte) error {
		return client.ProduceSync(context.Background(), &kgo.Record{Topic: c.Topic, Value: value}).FirstErr()
	}
}

// TestKillLoop: two processes write a row for each message of a load, one of them is killed again and again, runs fail before
// and behind their commit: each message has its row, once, and the inbox forgets all of them.
func TestKillLoop(t *testing.T) {
	kills, long := 4, os.Getenv("LONGSHORE_REAL") != ""
	if long {
		kills = 20
	}
	for name, start := range map[string]func(*testing.T, *workerConfig) func([]byte) error{"jetstream": startNATS,
		"kafka": startKafka} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, d database) {
				if d.Dialect == inbox.Postgres && !long {
					t.Skip("only with LONGSHORE_REAL=1")
				}
				n := kills
				if name == "kafka" && os.Getenv("LONGSHORE_CHAOS") == "" { // after each a session has to run out
					n = min(n, 6)
				}
				killLoop(t, d, start, n)
			})
		})
	}
}

// withinWindow fails where the inbox has more rows than messages were sent above the floors, and returns how many it has.
func withinWindow(t *testing.T, db *sql.DB, sent *atomic.Int64) (rows int) {
	t.Helper()
	var floors, logs int64
	if err := db.QueryRow("SELECT (SELECT count(*) FROM longshore_inbox), coalesce(sum(floor), 0), count(*) FROM "+
		"longshore_inbox_floors").
		Scan(&rows, &floors, &logs); err != nil {
		t.Fatal(err)
	}
	// The load counts a message when it was confirmed, and a stream counts from 1.
	if window := sent.Load() + 1 - floors + logs; int64(rows) > window {
		t.Errorf("the inbox has %d rows, and %d messages are above the floors", rows, window)
	}
	return rows
}

func killLoop(t *testing.T, d database, start func(*testing.T, *workerConfig) func([]byte) error, kills int) {
	db := d.open(t)
	d.box(t, db)
	c := workerConfig{Database: d, Topic: "orders" + unique()}
	send := start(t, &c)
	loading, stop := context.WithCancel(t.Context())
	var sent atomic.Int64
	var loaded sync.WaitGroup
	loaded.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-loading.Done():
				return
			case <-tick.C:
			}
			for range 5 {
				if err := send([]byte(strconv.FormatInt(sent.Load(), 10))); err != nil {
					t.Errorf("sending: %v", err)
					return
				}
				sent.Add(1)
			}
		}
	})
	workers := []*worker{startWorker(t, c), startWorker(t, c)}
	most := 0
	for range kills {
		time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond)) // when it is killed, and not whether the test passes
		i := rand.IntN(2)
		workers[i].kill()
		most = max(most, withinWindow(t, db, &sent))
		workers[i] = startWorker(t, c)
	}
	stop()
	loaded.Wait()
	eventually(t, "all messages have a row", func() bool { return rows(t, db, "effects") >= int(sent.Load()) })
	eventually(t, "the inbox has forgotten all of them", func() bool { return rows(t, db, "longshore_inbox") == 0 })
	for _, w := range workers {
		w.terminate(t)
	}
	var messages, effects int
	if err := db.QueryRow("SELECT count(DISTINCT position), count(*) FROM effects").Scan(&messages, &effects); err != nil {
		t.Fatal(err)
	}
	n := int(sent.Load())
	t.Logf("%d kills: %d messages, %d rows, %d of different ones; the inbox had at most %d rows when it was looked at", kills, n,
		effects,
		messages, most)
	if messages != n || effects != n {
		t.Errorf("%d messages, %d rows of %d different ones: %d lost, %d twice", n, effects, messages, n-messages, effects-messages)
	}
}
