package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// TestPrograms: each program of docs/programs.md is what gofmt makes of it, compiles, handles an order, makes a dead letter of
// what is none, and ends well on a signal.
func TestPrograms(t *testing.T) {
	orders := []broker.Outgoing{{Value: []byte(`{"id": "o-7", "crates": 3}`)}, {Value: []byte(`{"id": "o-8"}`)},
		{Value: []byte("no JSON")}}
	for name, on := range map[string]func(t *testing.T) (env string, publish func(ms []broker.Outgoing) error, letters func() int64){
		"kafka": programOnKafka, "nats": programOnNATS, "production": programOnNATS,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := buildPasted(t, name)
			env, publish, letters := on(t)
			var out output
			cmd := exec.Command(bin)
			cmd.Env = append(os.Environ(), env, "ADMIN_ADDR=127.0.0.1:0")
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			over := make(chan error, 1)
			go func() { over <- cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			await := func(what string, cond func() bool) {
				t.Helper()
				for end := time.Now().Add(time.Minute); !cond(); time.Sleep(20 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%s: not within a minute; the program said:\n%s", what, out.String())
					}
				}
			}
			await("the orders were published", func() bool { return publish(orders) == nil })
			await("the order was handled", func() bool { return strings.Contains(out.String(), "o-7: 3 crates") })
			await("the others are dead letters", func() bool { return letters() >= 2 })
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-over:
				if err != nil {
					t.Errorf("after SIGTERM the program ended with %v; it said:\n%s", err, out.String())
				}
			case <-time.After(time.Minute):
				t.Errorf("the program did not end within a minute of SIGTERM; it said:\n%s", out.String())
			}
		})
	}
}

// TestProgramWithInbox: the one with an inbox compiles; what it does is tested in integration/inbox, which has the databases.
func TestProgramWithInbox(t *testing.T) {
	t.Parallel()
	buildPasted(t, "inbox")
}

// TestTestingPage: the tests on docs/testing.md pass.
func TestTestingPage(t *testing.T) {
	t.Parallel()
	file := paste(t, "../docs/testing.md", "test", "bill_test.go")
	onPage := regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllString(read(t, file), -1)
	out := goCommand(t, "test", "-v", "-count=1", "-timeout=1m", file)
	if passed := strings.Count(out, "--- PASS: Test"); passed != len(onPage) || passed == 0 {
		t.Errorf("%d tests passed, the page has %d:\n%s", passed, len(onPage), out)
	}
}

// buildPasted compiles the page's program of that name against this module.
func buildPasted(t *testing.T, name string) string {
	t.Helper()
	file := paste(t, "../docs/programs.md", name, "main.go")
	bin := filepath.Join(filepath.Dir(file), "program")
	goCommand(t, "build", "-o", bin, file)
	return bin
}

// paste writes the page's block of Go that has this word beside its fence to a file of that name.
func paste(t *testing.T, page, word, name string) string {
	t.Helper()
	block := regexp.MustCompile("(?s)```go " + word + "\n(.*?)```").FindStringSubmatch(read(t, page))
	if block == nil {
		t.Fatalf("%s has no block of Go with the word %s", page, word)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(block[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if formatted, err := format.Source([]byte(block[1])); err != nil || string(formatted) != block[1] {
		t.Errorf("%s: gofmt has something to say about the block %s: %v", page, word, err)
	}
	return file
}

// goCommand runs the go command in this module and returns what it says.
func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func programOnKafka(t *testing.T) (env string, publish func([]broker.Outgoing) error, letters func() int64) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "orders-dead"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	conn := kafkabroker.Connection{Brokers: cluster.ListenAddrs()}
	p, err := kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: conn})
	if err != nil {
		t.Fatal(err)
	}
	return "KAFKA_BROKERS=" + conn.Brokers[0], publishing(t, p,
		"orders"), func() int64 { return cluster.PartitionInfo("orders-dead", 0).HighWatermark }
}

func programOnNATS(t *testing.T) (env string, publish func([]broker.Outgoing) error, letters func() int64) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true,
		NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	url := s.ClientURL()
	p, err := natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: natsbroker.Connection{URLs: []string{url}}})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return "NATS_URL=" + url, publishing(t, p, "orders.new"), func() int64 {
		s, err := js.Stream(t.Context(), "ORDERS")
		if err != nil {
			return -1
		}
		i, err := s.Info(t.Context(), jetstream.WithSubjectFilter("dead.orders"))
		if err != nil {
			return -1
		}
		return int64(i.State.Subjects["dead.orders"])
	}
}

// publishing publishes to the topic, which may not be there yet.
func publishing(t *testing.T, p broker.Publisher, topic string) func([]broker.Outgoing) error {
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return func(ms []broker.Outgoing) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var left []broker.Outgoing
		for i, m := range ms {
			m.Topic, m.ID = topic, fmt.Sprint("order-", i)
			left = append(left, m)
		}
		err := p.Publish(ctx, left)
		if errors.Is(err, broker.ErrClosed) {
			t.Fatal(err)
		}
		return err
	}
}

// output is what a process says, as it says it.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
