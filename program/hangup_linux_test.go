package program

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHangUpDrains: a terminal that closes sends SIGHUP, often twice. Both together are one stop, and the handler that runs is
// waited for.
func TestHangUpDrains(t *testing.T) {
	t.Parallel()
	// Tests that run under nohup ignore SIGHUP, and so would a process that they start: while this one listens, its children do not.
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	run, drains := launchBusy(t)
	run.signal(t, syscall.SIGHUP)
	run.eventually(t, "draining", func() bool { return strings.Contains(run.stderr.String(), `"state":"draining"`) })
	run.signal(t, syscall.SIGHUP)
	drains()
}

// TestDrainsWithoutReader: who reads the log is gone when the stop comes, as tee is after a Ctrl-C that both got. The drain waits
// for the handler all the same, and the commands that are started then know SIGPIPE as all others do.
func TestDrainsWithoutReader(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	const command = "grep SigIgn /proc/self/status > ignored; echo > started; while [ ! -e go ]; do sleep 0.1; done; echo > ended"
	writeFile(t, dir, "c.yaml", embeddedFile(port, "routes: [{handler: exec, with: {command: [sh, -c, '"+command+"'], dir: "+dir+
		"}}]"))
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	log, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	run := &program{cmd: exec.Command(path, "run", "-c", "c.yaml"), done: make(chan struct{})}
	run.cmd.Dir, run.cmd.Stderr = dir, w
	if err := run.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	go func() { defer close(run.done); _ = run.cmd.Wait() }()
	t.Cleanup(func() { _ = run.cmd.Process.Kill(); <-run.done })
	_ = log.SetReadDeadline(time.Now().Add(patience))
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("it does not run: %v", err)
		}
		_, _ = io.WriteString(&run.stderr, line)
		if strings.Contains(line, `"state":"running"`) {
			break
		}
	}
	_ = log.Close()
	if code := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "1").code(t); code != 0 {
		t.Fatalf("produce: %d", code)
	}
	run.eventually(t, "a handler runs", func() bool { _, err := os.Stat(filepath.Join(dir, "started")); return err == nil })
	run.signal(t, syscall.SIGTERM)
	writeFile(t, dir, "go", "")
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d, want 0: %v", code, run.cmd.ProcessState)
	}
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Errorf("the handler did not end: %v", err)
	}
	_, mask, _ := strings.Cut(readFile(t, dir, "ignored"), "\t")
	if ignored, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64); err != nil || ignored&(1<<(syscall.SIGPIPE-1)) != 0 {
		t.Errorf("a command ignores SIGPIPE: %q, %v", mask, err)
	}
}
