//go:build unix

// Package natsd runs nats-server as a process of its own, so that it can be killed, frozen and restarted on the same data and
// port.
package natsd

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/integration/daemon"
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

	args    []string
	process *daemon.Process
}

// Start builds nats-server from its Go module and starts it on fresh data. The server ends with the test. Where it cannot be
// built the test is skipped; with LONGSHORE_REAL set it fails instead. args go to nats-server as they are.
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
			t.Logf("end of nats-server's log:\n%s", s.process.Log())
		}
	})
	return s
}

// Prepare is New outside of tests: the caller kills the server. Its data go to dir.
func Prepare(dir string, args ...string) (*Server, error) {
	if _, err := binary(); err != nil {
		return nil, err
	}
	port, err := daemon.FreePort()
	if err != nil {
		return nil, err
	}
	return &Server{Port: port, Dir: dir, args: args, process: daemon.New("nats-server")}, nil
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
	if err := s.process.Start(exec.Command(path, args...)); err != nil {
		return err
	}
	// The greeting is sent once JetStream is up.
	return s.process.AwaitReady(30*time.Second, s.greets)
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
func (s *Server) Kill() { s.process.Kill() }

// Freeze stops the process with SIGSTOP: connections stay, nothing answers.
func (s *Server) Freeze() error { return s.process.Freeze() }

// Thaw goes on after Freeze.
func (s *Server) Thaw() error { return s.process.Thaw() }

// Pid is the process's id.
func (s *Server) Pid() int { return s.process.Pid() }
