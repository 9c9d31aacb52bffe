//go:build unix

package redisbroker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// What a process of the kill loop is to do, by the environment.
const (
	envWorker = "REDISBROKER_WORKER" // how: longshore, or naive
	envServer = "REDISBROKER_SERVER"
	envLedger = "REDISBROKER_LEDGER"
	killTopic = "orders"
	killGroup = "workers"
)

// TestKill: SIGKILL of one of two processes under load, again and again. Nothing is lost, beside a consumer that acks on
// receipt and is known to lose: a loop that cannot see loss fails, too.
func TestKill(t *testing.T) {
	for _, how := range []string{"longshore", "naive"} {
		t.Run(how, func(t *testing.T) {
			lost, again, kills := killLoop(t, how, 6000, 8)
			t.Logf("%s: 6000 messages, %d kills, %d lost, %d handled again", how, kills, lost, again)
			if how == "longshore" && lost > 0 {
				t.Errorf("%d messages are lost", lost)
			}
			if how == "naive" && lost == 0 {
				t.Error("a consumer that acks on receipt lost nothing: the loop would not see it")
			}
		})
	}
}

func killLoop(t *testing.T, how string, n, kills int) (lost, again, killed int) {
	addr := sharedServer(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	ctx := t.Context()
	if err := rdb.Del(ctx, killTopic).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.XGroupCreateMkStream(ctx, killTopic, killGroup, "0").Err(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	a, b := startWorker(t, how, addr, dir, 0), startWorker(t, how, addr, dir, 1)
	workers := []*exec.Cmd{a, b}
	sent := make(chan error, 1)
	go func() { sent <- publish(ctx, addr, n) }()
	count := 2
	for ; killed < kills; killed++ {
		time.Sleep(time.Duration(150+rand.IntN(250)) * time.Millisecond)
		i := rand.IntN(2)
		kill(workers[i])
		workers[i] = startWorker(t, how, addr, dir, count)
		count++
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	left := func() int64 {
		g, err := rdb.XInfoGroups(ctx, killTopic).Result()
		if err != nil {
			t.Fatal(err)
		}
		return g[0].Pending + g[0].Lag
	}
	for end := time.Now().Add(time.Minute); left() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d messages are not settled", left())
		}
	}
	time.Sleep(100 * time.Millisecond) // what a naive one has is handled, or never
	for _, w := range workers {
		kill(w)
	}
	seen := ledger(t, dir)
	for i := range n {
		switch times := seen[strconv.Itoa(i)]; {
		case times == 0:
			lost++
		default:
			again += times - 1
		}
	}
	return lost, again, killed
}

func publish(ctx context.Context, addr string, n int) error {
	p, err := NewPublisher(PublisherConfig{Redis: &redis.Options{Addr: addr}})
	if err != nil {
		return err
	}
	for i := 0; i < n; i += 20 {
		var ms []broker.Outgoing
		for j := range 20 {
			ms = append(ms, broker.Outgoing{Topic: killTopic, Value: []byte(strconv.Itoa(i + j))})
		}
		if err := p.Publish(ctx, ms); err != nil {
			return err
		}
		time.Sleep(8 * time.Millisecond)
	}
	return p.Close(ctx)
}

func startWorker(t *testing.T, how, addr, dir string, no int) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), envWorker+"="+how, envServer+"="+addr, envLedger+"="+filepath.Join(dir, strconv.Itoa(no)))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	return cmd
}

func kill(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// ledger counts what the processes wrote down. A line that a kill cut off is none.
func ledger(t *testing.T, dir string) map[string]int {
	seen := make(map[string]int)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for _, line := range lines[:len(lines)-1] {
			seen[line]++
		}
	}
	return seen
}

// worker is what a process of the kill loop runs, until it is killed.
func worker(how string) error {
	f, err := os.OpenFile(os.Getenv(envLedger), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	handle := func(value []byte) error {
		time.Sleep(2 * time.Millisecond)
		_, err := fmt.Fprintf(f, "%s\n", value)
		return err
	}
	opts := &redis.Options{Addr: os.Getenv(envServer)}
	if how == "naive" {
		return naive(opts, handle)
	}
	s, err := NewSource(Config{Redis: opts, Group: killGroup, Topics: []string{killTopic}, Lease: time.Second})
	if err != nil {
		return err
	}
	c, err := consumer.New(consumer.Config{
		Source: s, Pool: consumer.Pool{Min: 4, Max: 16},
		Handler: func(_ context.Context, m *consumer.Message) error { return handle(m.Value) },
	})
	if err != nil {
		return err
	}
	return c.Run(context.Background())
}

// naive acks on receipt.
func naive(opts *redis.Options, handle func([]byte) error) error {
	rdb := redis.NewClient(opts)
	for {
		streams, err := rdb.XReadGroup(context.Background(), &redis.XReadGroupArgs{
			Group: killGroup, Consumer: "naive", Streams: []string{killTopic, ">"}, Count: 64, Block: time.Second, NoAck: true,
		}).Result()
		if err != nil && err != redis.Nil {
			return err
		}
		for _, s := range streams {
			for _, m := range s.Messages {
				v, _ := m.Values[fieldValue].(string)
				if err := handle([]byte(v)); err != nil {
					return err
				}
			}
		}
	}
}
