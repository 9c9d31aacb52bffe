//go:build unix

// Package natsd runs nats-server as a process of its own, so that it can be killed, frozen and restarted on the same data and port.
package natsd

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const serverPackage = "github.com/nats-io/nats-server/v2"

// binary builds the server once per test binary. Go's build cache makes all but the first build cheap.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", serverPackage).Output()
	if err != nil {
		return "", fmt.Errorf("asking for the version of %s: %w", serverPackage, err)
	}
	path := filepath.Join(dir, "longshore", "nats-server-"+strings.TrimSpace(string(out)))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	// Several test binaries may build at once: each into a name of its own, then rename, so that nobody runs half a file.
	tmp := path + "." + strconv.Itoa(os.Getpid())
	if out, err := exec.Command("go", "build", "-o", tmp, serverPackage).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", serverPackage, err, out)
	}
	return path, os.Rename(tmp, path)
})

// A Server is one nats-server with JetStream on a port of the loopback that stays the same over restarts. Its methods are for one
// goroutine at a time.
type Server struct {
	// Port it listens on.
	Port int
	// Dir is where its streams are.
	Dir string

	args []string
	cmd  *exec.Cmd
	done chan struct{}
	log  *tail
}

// Start builds nats-server from its Go module and starts it on fresh data. The server ends with the test. Where it cannot be built the
// test is skipped; with LONGSHORE_REAL set it fails instead. args go to nats-server as they are.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := New(t, args...)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// New is Start without starting: the port is chosen, and nobody listens on it.
func New(t testing.TB, args ...string) *Server {
	t.Helper()
	if _, err := binary(); err != nil {
		if os.Getenv("LONGSHORE_REAL") != "" {
			t.Fatalf("LONGSHORE_REAL is set, and there is no nats-server: %v", err)
		}
		t.Skipf("NO REAL BROKER: %v", err)
	}
	s, err := Prepare(t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("end of nats-server's log:\n%s", s.log)
		}
	})
	return s
}

// Prepare is New outside of tests: the caller kills the server. Its data go to dir.
func Prepare(dir string, args ...string) (*Server, error) {
	if _, err := binary(); err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	return &Server{Port: port, Dir: dir, args: args, log: &tail{}}, nil
}

// URL is where clients connect.
func (s *Server) URL() string { return "nats://" + s.Addr() }

// Addr is host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// Start starts the server on its data and port, and waits until it takes connections.
func (s *Server) Start() error {
	path, err := binary()
	if err != nil {
		return err
	}
	args := append([]string{"-a", "127.0.0.1", "-p", strconv.Itoa(s.Port), "-js", "-sd", s.Dir}, s.args...)
	s.cmd = exec.Command(path, args...)
	s.cmd.Stderr, s.cmd.Stdout = s.log, s.log
	s.cmd.SysProcAttr = dieWithParent()
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("starting nats-server: %w", err)
	}
	done := make(chan struct{})
	s.done = done
	go func(cmd *exec.Cmd) { _ = cmd.Wait(); close(done) }(s.cmd)
	return s.waitReady(30 * time.Second)
}

// waitReady waits for the server's greeting, which it sends once JetStream is up.
func (s *Server) waitReady(limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		select {
		case <-s.done:
			return fmt.Errorf("nats-server ended at once:\n%s", s.log)
		case <-time.After(5 * time.Millisecond):
		}
		if s.greets() {
			return nil
		}
	}
	return fmt.Errorf("nats-server does not answer within %v:\n%s", limit, s.log)
}

func (s *Server) greets() bool {
	c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	var b [5]byte
	n, _ := c.Read(b[:])
	return bytes.HasPrefix(b[:n], []byte("INFO"))
}

// Kill sends SIGKILL and waits for the end. What the server wrote stays, as after a crash of the process (not of the machine).
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Freeze stops the process with SIGSTOP: connections stay, nothing answers.
func (s *Server) Freeze() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw goes on after Freeze.
func (s *Server) Thaw() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// Pid is the process's id.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// FreePort finds a port that nobody listens on. It lies below the range from which outgoing connections get theirs, so that none of
// them takes it while the server is down.
func FreePort() (int, error) {
	for range 200 {
		port := 15000 + rand.IntN(15000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 15000 and 30000")
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - 8<<10; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
