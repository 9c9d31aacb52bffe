package redisbroker

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable()
	if how := os.Getenv(envWorker); how != "" {
		fmt.Fprintln(os.Stderr, worker(how))
		os.Exit(1)
	}
	_ = flag.Set("test.parallel", "8") // most cases wait
	code := m.Run()
	if running != nil {
		_ = running.Process.Kill()
		_ = running.Wait()
	}
	os.Exit(code)
}

// miniServer is a fake of Redis for one case.
func miniServer(t testing.TB) string {
	s, err := miniredis.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Addr()
}

var (
	start   sync.Once
	running *exec.Cmd
	address string
	trouble error
)

// sharedServer is a redis-server, or a valkey-server, for all tests of this process. LONGSHORE_REDIS=1 demands one.
func sharedServer(t testing.TB) string {
	t.Helper()
	start.Do(func() { address, trouble = startServer() })
	if trouble != nil && os.Getenv("LONGSHORE_REDIS") != "" {
		t.Fatal(trouble)
	}
	if trouble != nil {
		t.Skipf("NO REDIS: %v; nothing was tested on one", trouble)
	}
	return address
}

func startServer() (addr string, err error) {
	name, err := exec.LookPath("redis-server")
	if err != nil {
		if name, err = exec.LookPath("valkey-server"); err != nil {
			return "", err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr = l.Addr().String()
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return "", err
	}
	running = exec.Command(name, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--dir", os.TempDir())
	if err := running.Start(); err != nil {
		return "", err
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = rdb.Ping(context.Background()).Err(); err == nil {
			return addr, nil
		}
	}
	return "", fmt.Errorf("%s did not answer: %w", name, err)
}
