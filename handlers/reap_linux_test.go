package handlers_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/handlers"
)

// TestExecLeavesNoZombies: what a command leaves behind falls to process 1, which in a container is longshore. It is ended,
// and somebody has to hear of its end, or each message takes numbers of processes for ever.
func TestExecLeavesNoZombies(t *testing.T) {
	adopt(t)
	for name, c := range map[string]handlers.ExecConfig{
		"left behind": {Command: []string{"sh", "-c", "exec >/dev/null 2>&1; sleep 300 & sh -c 'sleep 300; :' & exit 0"}},
		"timed out":   {Command: []string{"sh", "-c", "sh -c 'sleep 300; :'; :"}, Timeout: 50 * time.Millisecond},
		"failed":      {Command: []string{"sh", "-c", "sleep 300 >/dev/null 2>&1 & exit 3"}},
	} {
		e, err := handlers.NewExec(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_ = e.Handle(t.Context(), &broker.Message{Topic: "a"})
		}
		for end := time.Now().Add(patience); len(zombies(t)) > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("%s: %q", name, zombies(t))
				break
			}
		}
	}
}

// adopt makes this process one that orphans fall to, as process 1 is.
func adopt(t *testing.T) {
	t.Helper()
	set := func(on uintptr) error {
		const childSubreaper = 36
		if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, childSubreaper, on, 0); errno != 0 {
			return errno
		}
		return nil
	}
	if err := set(1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set(0) })
}

// zombies are the children of this process that have ended, and nobody has heard of it.
func zombies(t *testing.T) (all []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		if i := bytes.LastIndexByte(stat, ')'); i > 0 && strings.HasPrefix(string(stat[i+1:]), fmt.Sprintf(" Z %d ", os.Getpid())) {
			all = append(all, string(stat[:i+1]))
		}
	}
	return all
}
