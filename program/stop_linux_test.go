package program

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// deaf is a command that ignores SIGTERM, as its child does, and writes down its process group.
const deaf = `trap "" TERM; sleep 300 & echo $$ > group.new; mv group.new group; sleep 300; sleep 300`

// group is the process group that deaf has written down, killed at the test's end.
func group(t *testing.T, dir string) int {
	t.Helper()
	id, err := strconv.Atoi(strings.TrimSpace(readFile(t, dir, "group")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-id, syscall.SIGKILL) })
	return id
}

// members are the living processes of a group. Those that are dead and not yet collected do not count.
func members(t *testing.T, group int) (pids []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // has ended meanwhile
		}
		_, rest, _ := strings.Cut(string(text), ") ") // state, parent, group
		if f := strings.Fields(rest); f[2] == strconv.Itoa(group) && f[0] != "Z" && f[0] != "X" {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// wantNobody waits until at most n of a group are left.
func wantNobody(t *testing.T, group, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); len(members(t, group)) > n; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("processes %v of the command's group are left", members(t, group))
			return
		}
	}
}

// TestNoCommandOutlivesTheProgram: neither a drain, which waits for kill_after, nor a second signal, nor SIGKILL leaves the
// command behind.
func TestNoCommandOutlivesTheProgram(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signals []syscall.Signal
		drain   string // drain_timeout: the second signal comes before its end
		code    int
		left    int // of the group: the kernel ends only the command itself
	}{
		"drain":         {[]syscall.Signal{syscall.SIGTERM}, "1s", 0, 0},
		"second signal": {[]syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, "5m", 143, 0},
		"killed":        {[]syscall.Signal{syscall.SIGKILL}, "1s", -1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, port := t.TempDir(), freePort(t)
			writeFile(t, dir, "c.yaml", "kill_grace: 10m\n"+embeddedFile(port, "drain_timeout: "+c.drain,
				"routes: [{handler: exec, with: {command: [sh, -c, '"+deaf+"'], dir: "+dir+", timeout: 5m, kill_after: 3s}}]"))
			run := launch(t, dir, "run", "-c", "c.yaml")
			run.eventually(t, "running", func() bool { return strings.Contains(run.stderr.String(), `"state":"running"`) })
			if p := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "1"); p.code(t) != 0 {
				t.Fatalf("produce: %s", p.stderr.String())
			}
			run.eventually(t, "the command runs", func() bool { _, err := os.Stat(filepath.Join(dir, "group")); return err == nil })
			id := group(t, dir)
			run.eventually(t, "its child, too", func() bool { return len(members(t, id)) == 3 })
			run.signal(t, c.signals[0])
			if len(c.signals) > 1 {
				run.eventually(t, "draining", func() bool { return strings.Contains(run.stderr.String(), `"state":"draining"`) })
				run.force(t, c.signals[1])
			}
			if code := run.code(t); code != c.code {
				t.Errorf("exit code %d, want %d; stderr:\n%s", code, c.code, run.stderr.String())
			}
			wantNobody(t, id, c.left)
		})
	}
}
