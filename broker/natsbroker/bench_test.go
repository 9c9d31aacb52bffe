package natsbroker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// TestServerProcess is not a test: it is a nats-server in a process of its own, for those that need one.
func TestServerProcess(t *testing.T) {
	dir := os.Getenv("NATSBROKER_SERVER_DIR")
	if dir == "" {
		t.Skip("runs as a child of other tests")
	}
	port, err := strconv.Atoi(os.Getenv("NATSBROKER_SERVER_PORT"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true,
		NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		t.Fatal("not ready")
	}
	fmt.Println("READY")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
	s.Shutdown()
	s.WaitForShutdown()
}

// serverProcess is a nats-server as a child process.
type serverProcess struct {
	t    testing.TB
	dir  string
	port int
	cmd  *exec.Cmd
	in   io.Closer
}

func startServerProcess(t testing.TB) *serverProcess {
	t.Helper()
	p := &serverProcess{t: t, dir: t.TempDir(), port: freePort(t)}
	p.up()
	t.Cleanup(p.kill)
	return p
}

func (p *serverProcess) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", p.port) }

func (p *serverProcess) up() {
	p.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerProcess$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), "NATSBROKER_SERVER_DIR="+p.dir, fmt.Sprintf("NATSBROKER_SERVER_PORT=%d", p.port))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.cmd, p.in = cmd, in
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "READY") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return
		}
	}
	p.t.Fatal("the server process did not start")
}

// stop ends the server in good order.
func (p *serverProcess) stop() {
	if p.cmd != nil {
		_ = p.in.Close()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// kill ends the server without a goodbye.
func (p *serverProcess) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		_ = p.in.Close()
		p.cmd = nil
	}
}

type figures struct {
	rate, allocs, cpu float64 // messages a second, allocations and microseconds of CPU each
}

func measure(n int, work func()) figures {
	runtime.GC()
	var m0, m1 runtime.MemStats
	var r0, r1 syscall.Rusage
	runtime.ReadMemStats(&m0)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r0)
	t0 := time.Now()
	work()
	d := time.Since(t0)
	runtime.ReadMemStats(&m1)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r1)
	cpu := r1.Utime.Nano() + r1.Stime.Nano() - r0.Utime.Nano() - r0.Stime.Nano()
	f := float64(n)
	return figures{f / d.Seconds(), float64(m1.Mallocs-m0.Mallocs) / f, float64(cpu) / 1e3 / f}
}

// TestThroughput prints what a message costs here and with nats.go's Consume, in one run, server in its own process. It decides
// nothing. NATSBROKER_BENCH is the number of messages, 500,000 for the figures in the docs.
func TestThroughput(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("NATSBROKER_BENCH"))
	if n == 0 {
		t.Skip("set NATSBROKER_BENCH to the number of messages")
	}
	p := startServerProcess(t)
	nc, err := nats.Connect(p.url())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, _ := jetstream.New(nc)
	ctx := context.Background()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"},
		Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	load(t, p.url(), "s.a", n, 100)
	var ours, theirs []figures
	for i := range 5 {
		theirs = append(theirs, consumeNats(t, p.url(), fmt.Sprint("n", i), "", n))
		ours = append(ours, consumeOurs(t, p.url(), fmt.Sprint("o", i), "", n, 64<<20))
	}
	a, b := median(ours), median(theirs)
	t.Logf("natsbroker %8.0f msg/s  %5.2f allocs  %5.2f us CPU", a.rate, a.allocs, a.cpu)
	t.Logf("Consume    %8.0f msg/s  %5.2f allocs  %5.2f us CPU", b.rate, b.allocs, b.cpu)
	t.Logf("ratio      %8.2f", a.rate/b.rate)
	for i := range ours {
		t.Logf("  run %d: ours %8.0f (%.2f us)  Consume %8.0f (%.2f us)", i, ours[i].rate, ours[i].cpu, theirs[i].rate, theirs[i].cpu)
	}
}

// load publishes n messages of a size.
func load(t *testing.T, url, subject string, n, size int) {
	t.Helper()
	p := newPublisher(t, url)
	ms := make([]broker.Outgoing, max(1, min(10_000, (8<<20)/size)))
	for i := range ms {
		ms[i] = broker.Outgoing{Topic: subject, Value: make([]byte, size)}
	}
	for left := n; left > 0; left -= len(ms) {
		ms = ms[:min(left, len(ms))]
		if err := p.Publish(context.Background(), ms); err != nil {
			t.Fatal(err)
		}
	}
}

// TestThroughputOfSizes prints how messages of several sizes come through budgets of bytes here and through nats.go's Consume
// with the same bound, in one run, server in its own process. It decides nothing. NATSBROKER_BENCH_MB is how much of each size,
// 300 for the figures in the docs.
func TestThroughputOfSizes(t *testing.T) {
	mb, _ := strconv.Atoi(os.Getenv("NATSBROKER_BENCH_MB"))
	if mb == 0 {
		t.Skip("set NATSBROKER_BENCH_MB to the megabytes of each size")
	}
	p := startServerProcess(t)
	adminOf(t, p.url()).stream()
	for _, size := range []int{10_000, 100_000, 1_000_000} {
		n, subject := mb*1_000_000/size, fmt.Sprint("s.", size)
		load(t, p.url(), subject, n, size)
		for _, budget := range []int{8 << 20, 64 << 20} {
			var ours, theirs []figures
			for i := range 3 {
				name := fmt.Sprint(size, "-", budget, "-", i)
				// with more, it is dropped
				theirs = append(theirs, consumeNats(t, p.url(), "n"+name, subject, n, jetstream.PullMaxBytes(min(budget, 16<<20))))
				ours = append(ours, consumeOurs(t, p.url(), "o"+name, subject, n, int64(budget)))
			}
			a, b := median(ours), median(theirs)
			t.Logf("%7d bytes, budget %2d MiB: natsbroker %6.0f msg/s, Consume %6.0f msg/s, ratio %.2f", size, budget>>20, a.rate, b.rate,
				a.rate/b.rate)
		}
	}
}

func median(fs []figures) figures {
	fs = slices.Clone(fs)
	slices.SortFunc(fs, func(a, b figures) int { return int(a.rate - b.rate) })
	return fs[len(fs)/2]
}

// consumeOurs receives n messages of a subject; empty: of all.
func consumeOurs(t *testing.T, url, name, subject string, n int, budget int64) figures {
	cfg := config(url)
	if subject != "" {
		cfg.Subjects = []string{subject}
	}
	cfg.Consumer, cfg.Poll, cfg.Heartbeat = name, 2*time.Second, 5*time.Second
	s := open(t, cfg, func(o *broker.Options) { o.Budget = broker.Budget{Messages: 2000, Bytes: budget} })
	f := measure(n, func() {
		dst := make([]broker.Message, 256)
		tokens := make([]uint64, 0, 256)
		for got := 0; got < n; {
			k, err := s.Receive(dst)
			if err != nil {
				t.Fatal(err)
			}
			tokens = tokens[:0]
			for i := range dst[:k] {
				tokens = append(tokens, dst[i].Token)
			}
			if err := s.Ack(dst[0].Claim, tokens); err != nil {
				t.Fatal(err)
			}
			got += k
		}
		closeSource(t, s)
	})
	return f
}

func consumeNats(t *testing.T, url, name, subject string, n int, opts ...jetstream.PullConsumeOpt) figures {
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, _ := jetstream.New(nc)
	c, err := js.CreateConsumer(context.Background(), "S",
		jetstream.ConsumerConfig{Durable: name, FilterSubject: subject, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	var count atomic.Int64
	done := make(chan struct{})
	return measure(n, func() {
		cc, err := c.Consume(func(m jetstream.Msg) {
			_ = m.Ack()
			if count.Add(1) == int64(n) {
				close(done)
			}
		}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		<-done
		_ = nc.Flush()
		cc.Stop()
	})
}
