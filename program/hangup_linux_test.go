package program

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestHangUpDrains: a terminal that closes sends SIGHUP, often twice. Both together are one stop, and the handler that runs is
// waited for.
func TestHangUpDrains(t *testing.T) {
	t.Parallel()
	// Tests that run under nohup ignore SIGHUP, and so would a process that they start: while this one listens, its children do not.
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	dir, port := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", embeddedFile(port, "routes: [{handler: exec, with: {command: [sh, -c, 'echo > started; while [ ! "+
		"-e go ]; do sleep 0.1; done; echo > ended'], dir: "+dir+"}}]"))
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "running", func() bool { return strings.Contains(run.stderr.String(), `"state":"running"`) })
	if code := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "1").code(t); code != 0 {
		t.Fatalf("produce: %d", code)
	}
	run.eventually(t, "a handler runs", func() bool { _, err := os.Stat(filepath.Join(dir, "started")); return err == nil })
	run.signal(t, syscall.SIGHUP)
	run.eventually(t, "draining", func() bool { return strings.Contains(run.stderr.String(), `"state":"draining"`) })
	run.signal(t, syscall.SIGHUP)
	writeFile(t, dir, "go", "")
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, run.stderr.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Errorf("the handler did not end: %v", err)
	}
}
