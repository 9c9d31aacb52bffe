//go:build unix

// Package daemon runs a server as a process of its own, so that it can be killed, frozen and started again.
package daemon

import (
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// A Process is a server that may be started more than once, on whatever data it has. It dies with the process that started it (on
// Linux). Its methods are for one goroutine at a time.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	log  *tail
}

// New names a server that is not started yet.
func New(name string) *Process { return &Process{name: name, log: &tail{}} }

// Start starts cmd. Its output goes to Log, but for a standard output that cmd has another writer for.
func (p *Process) Start(cmd *exec.Cmd) error {
	if cmd.Stderr = p.log; cmd.Stdout == nil {
		cmd.Stdout = p.log
	}
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() { _ = cmd.Wait(); close(done) }()
	return nil
}

// AwaitReady asks ready again and again, until it is true, the process ends, or limit is over.
func (p *Process) AwaitReady(limit time.Duration, ready func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at once:\n%s", p.name, p.log)
		case <-time.After(5 * time.Millisecond):
		}
		if ready() {
			return nil
		}
	}
	return fmt.Errorf("%s does not answer within %v:\n%s", p.name, limit, p.log)
}

// Kill sends SIGKILL, which a frozen process takes too, and waits for the end. What the server wrote stays, as after a crash of
// the process (not of the machine). A process that is not running is left alone.
func (p *Process) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop sends SIGTERM and waits for the end. After limit it kills, and says so.
func (p *Process) Stop(limit time.Duration) error {
	if p.cmd == nil {
		return fmt.Errorf("stopping %s: it does not run", p.name)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(limit):
		p.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM:\n%s", p.name, limit, p.log)
	}
}

// Freeze stops the process with SIGSTOP: connections stay, nothing answers.
func (p *Process) Freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw goes on after Freeze.
func (p *Process) Thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Running says whether the process was started and has not ended.
func (p *Process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Pid is the id of the process that was started last.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Log is the end of what the server printed, over all its starts.
func (p *Process) Log() string { return p.log.String() }

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
