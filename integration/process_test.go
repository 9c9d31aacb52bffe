//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a condition may take to come. It decides that something is stuck, never that it is slow.
const patience = 4 * time.Minute

// A process is a consumer in a process of its own. It is killed at the end of the test, and by the kernel when the test binary
// dies.
type process struct {
	cmd  *exec.Cmd
	out  *lines
	err  *lines
	done chan struct{}
	// id is what its runs are stamped with.
	id int
	// up is whether it is connected, atWork whether it has handled a message.
	up, atWork func() bool
}

func startProcess(t *testing.T, c consumerConfig) *process {
	t.Helper()
	arg, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := startCommand(t, exec.Command(exe), childEnv+"="+string(arg))
	p.up = func() bool { return p.out.count("up") > 0 }
	p.atWork = func() bool { return p.out.count("handled") > 0 }
	return p
}

// startCommand starts a consumer, with env beside our own environment.
func startCommand(t *testing.T, cmd *exec.Cmd, env ...string) *process {
	t.Helper()
	p := &process{cmd: cmd, out: &lines{}, err: &lines{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = dieWithParent()
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting a consumer: %v", err)
	}
	p.id = cmd.Process.Pid
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("consumer %d, last words: %s\nstderr: %s", p.cmd.Process.Pid, p.out.tail(), p.err.tail())
		}
	})
	return p
}

// says waits until the consumer has said word n times or more.
func (p *process) says(t *testing.T, word string, n int) {
	t.Helper()
	p.await(t, "says "+word, func() bool { return p.out.count(word) >= n })
}

// await waits until ok, which the consumer brings about as long as it runs.
func (p *process) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	eventually(t, "the consumer "+what, func() bool {
		if p.ended() {
			t.Fatalf("the consumer ended (%v) and is awaited: %s; stderr: %s", p.cmd.ProcessState, what, p.err.tail())
		}
		return ok()
	})
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill sends SIGKILL, also to a frozen process, and waits.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("sending %v: %v", s, err)
	}
}

// terminate sends SIGTERM and waits for the end; it returns the exit code and how long it took.
func (p *process) terminate(t *testing.T) (code int, took time.Duration) {
	t.Helper()
	began := time.Now()
	p.signal(t, syscall.SIGTERM)
	return p.exit(t), time.Since(began)
}

// exit waits for the end and returns the exit code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.signal(t, syscall.SIGQUIT) // Go prints its goroutines
		select {
		case <-p.done:
		case <-time.After(5 * time.Second):
		}
		t.Fatalf("the consumer did not end within %v: %s", patience, p.err.tail())
		return -1
	}
}

// lines collects what a process prints.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// all returns the whole lines so far.
func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ls []string
	for r := bufio.NewReader(bytes.NewReader(l.b.Bytes())); ; {
		s, err := r.ReadString('\n')
		if err == io.EOF {
			return ls
		}
		ls = append(ls, strings.TrimSuffix(s, "\n"))
	}
}

// count is how many lines are word, or begin with it and a space.
func (l *lines) count(word string) (n int) {
	for _, s := range l.all() {
		if s == word || strings.HasPrefix(s, word+" ") {
			n++
		}
	}
	return n
}

func (l *lines) contains(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.b.Bytes(), []byte(part))
}

func (l *lines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.b.Bytes()
	return string(b[max(0, len(b)-4<<10):])
}

// eventually waits until ok, which is asked again and again.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
